// Package kernelcheck proves with a kernel what gpumux claims of memory limits: cgroups of version 2 that the kernel enforces, and
// its out-of-memory killer.
//
// It owns the tests TestKernel_… and the virtual machine that they run in, with a kernel of Debian's: QEMU emulates it, so that
// it needs neither a host with such cgroups nor its permission to use them.
// It never changes the host's cgroups, and its files only in .kernel; outside of the machine the tests are skipped.
// It stops with its last step, and at its time limit with the machine and all that runs in it.
//
//	machine_test.go  the cgroups, workers and maps of a test
//	budget_test.go   budgets that the kernel enforces
//	scarce_test.go   a container and a host that run out of memory
//	check_test.go    the script
//	check.py         makes the machine, and the table
//	boot.sh          its first program
//	guest.py         runs the steps in it
//	test_check.py    the tests of check.py
package kernelcheck
