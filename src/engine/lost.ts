/** The error for a group of workers that is gone: its models cannot be used any more, and their state is lost. */

/** A worker or the shim died, hangs, or stopped in the middle of a collective call. A run can continue from a checkpoint. */
export class EngineLost extends Error {
  override readonly name = "EngineLost";
}
