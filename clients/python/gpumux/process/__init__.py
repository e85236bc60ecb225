"""The Python side of a slot: the task process, from its start by a worker to its end.

Owns the wire, the calls of the task, what they keep, and what a fault says. Clients import of it how values become JSON and bytes.
Needs only the standard library. It stops when the worker says so; main.py says how.
"""
