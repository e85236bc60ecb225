// Package gpucheck proves on a machine with an NVIDIA GPU what gpumux claims about GPUs.
//
// It owns the tests TestGPU_… and what runs them without Go: bundle.py packs program and
// tests, check.py runs them and ends with one table. It never changes a setting of a GPU.
// It stops with its tests; check.py ends every step at its time limit.
//
// Without a GPU they are skipped. TestLong_Rehearsal runs them on stand-ins of gputest,
// which shows that they can pass, and nothing about GPUs.
package gpucheck
