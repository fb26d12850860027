"""The verbs: parse, call one function, print. Nobody imports this package."""
