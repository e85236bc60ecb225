// Package python has the files of the Python package gpumux that a task process needs,
// for workers to put on disk.
//
// It owns the embedded files alone and runs nothing, so nothing here stops.
package python

import "embed"

// Process is the package without its client. A worker starts gpumux/process/main.py.
//
// The patterns name the files: a folder would leave out __init__.py.
//
//go:embed gpumux/__init__.py gpumux/llm/*.py gpumux/process/*.py gpumux/process/child/*.py
var Process embed.FS
