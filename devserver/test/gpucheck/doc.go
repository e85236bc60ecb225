// Package gpucheck proves on a machine with an NVIDIA GPU what gpumux claims about GPUs.
//
// It owns the tests TestGPU_… and what runs them where there is no Go: bundle.py packs the program
// and the compiled tests, check.py unpacks and runs them, measures, and ends with one table. It never
// changes a setting of a GPU, and starts one daemon of MPS, which ends with its test. It stops with
// its tests; check.py ends every step at its time limit, with all that the step started.
//
// Without a GPU the TestGPU_ tests are skipped. TestLong_Rehearsal runs them against the stand-ins of
// gputest and imitated frameworks: that shows that the tests can pass, and nothing about GPUs.
package gpucheck
