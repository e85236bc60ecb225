// Package gpucheck proves on a machine with an NVIDIA GPU what gpumux claims about GPUs.
//
// It owns the tests TestGPU_… and what runs them where there is no Go: bundle.py, which packs the program and the compiled tests,
// and check.py, which unpacks and runs them, then measures, and ends with one table.
// It never changes a setting of a GPU. The one daemon that it starts, of MPS, ends with its test.
// It stops with its tests; check.py ends every step at its time limit, with all that the step started.
//
// Without a GPU the TestGPU_ tests are skipped, and TestLong_Rehearsal runs them against stand-ins: the library of gputest in the place
// of NVML, one of its own in the place of the CUDA driver, and imitated frameworks. That shows that the tests can pass and that the
// wiring holds, and nothing about GPUs.
//
//	machine_test.go     the machine that the tests run on
//	inventory_test.go   the driver's word beside nvidia-smi's
//	answers_test.go     what the driver's libraries answer, word for word
//	memory_test.go      budgets, caps, what is given back
//	device_test.go      probes, contexts, a budget nearly full, MIG
//	faults_test.go      out-of-memory and ruined contexts
//	mps_test.go         NVIDIA's MPS daemon
//	commands_test.go    the command line
//	rehearsal_test.go   all of these against the stand-ins
//	check_test.go       the scripts
//	bundle.py           packs what a machine without Go needs
//	check.py            all steps, and the table
//	step.py             one step: its time limit and its processes
//	reading.py          what the output of a step comes to
//	facts.py            what the machine answers, raw
//	nvml.py             the calls of NVML among it
//	frameworks.py       what frameworks take on a device
//	test_scripts.py     the tests of the scripts
//	testdata/tasks.py   what the tests run in slots
//	testdata/imitation  the stand-ins but for NVML
package gpucheck
