"""The torch half of trainyard's Ray engine: a shim beside the controller, and the workers it starts.

Nothing here knows of rewards, advantages or losses: a worker computes what tokens get, takes back the derivative of a
number by each of these outputs, and updates its weights.
"""
