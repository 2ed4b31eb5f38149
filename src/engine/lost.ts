/** A group of workers that is gone: nothing can be asked of its models any more, and what they held is lost. */

/** A worker or the shim died, hangs, or broke off in the middle of common work. Training can go on from a checkpoint. */
export class EngineLost extends Error {
  override readonly name = "EngineLost";
}
