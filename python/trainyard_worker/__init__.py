"""The torch side of trainyard's Ray engine: a shim beside the controller, and the workers that it starts.

Nothing here knows about rewards, advantages or losses. A worker computes outputs per token, receives the derivative of
the loss with respect to each output, and updates its weights.
"""
