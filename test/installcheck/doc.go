// Package installcheck installs gpumux in each way that the documentation names, and runs
// it: by go install, by pip from a folder and from a repository, from the wheel and from
// what a release has.
//
// It owns a clone of the last commit, what it installs, and a module proxy of files, and
// removes them. It never runs with the other tests: `make install-check` runs it, with
// RUN=Pip one part alone.
package installcheck
