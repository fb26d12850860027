"""Measuring: open-loop load, honest latencies, verdicts. Reaches any server over HTTP only."""
