// Package pyruntime is the Python side of a task process, embedded.
//
// It owns the Python files and puts them on disk with Install. It never starts Python; package slot does. The files need
// Python 3.9 or newer and nothing but its standard library. Nothing here runs on after Install, so nothing has to stop.
//
// Files: install.go; gpumux/ is the Python package: __init__.py (what a task may use), main.py (start and end), wire.py
// (frames), board.py (results in shared memory), task.py (finding the function), call.py (running items), item.py (reading their
// JSON), memory.py (caps and trims), peak.py (what items held), encode.py (values as JSON), raw.py (values as they are), fault.py
// (exceptions), template.py (forking children that run items), chance.py (their random state).
// tests/ are Python's own tests, run by go test.
package pyruntime
