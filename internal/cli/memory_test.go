package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/starter"
)

func TestMemory_IsShownWhereItWasMeasured(t *testing.T) {
	peak := &gpumux.Peaks{Budget: 8 << 30}
	for range 99 {
		peak.Add(1 << 30)
	}
	peak.Add(34 << 30 / 10)
	const want = "peak per item: p50 1.1GiB, p99 1.1GiB, max 3.4GiB of 8GiB; memory: 4GiB would do\n"

	var b bytes.Buffer
	(&ending{Summary: gpumux.Summary{Items: 100, Succeeded: 100, Peak: peak}}).print(&b)
	require.Contains(t, b.String(), "  memory     "+want)
	b.Reset()
	(&ending{Summary: gpumux.Summary{Items: 100, Succeeded: 100}}).print(&b)
	require.NotContains(t, b.String(), "memory")
	require.NotContains(t, b.String(), "GPU")

	for _, d := range []*starter.Detail{
		{MapInfo: starter.MapInfo{Status: starter.StatusRunning}, Progress: &gpumux.Progress{Peak: peak}},
		{MapInfo: starter.MapInfo{Status: starter.StatusCompleted}, Summary: &gpumux.Summary{Peak: peak}},
	} {
		b.Reset()
		report.Detail(&b, d, nil, "", noon)
		require.Contains(t, b.String(), "memory     "+want)
	}
}

func TestMemory_WhatGPUsDidIsShown(t *testing.T) {
	second := gpumux.Duration(time.Second)
	use := &gpumux.GPUUse{Time: 100 * second, Computing: 38 * second, Energy: 21200, Slots: 100 * second, Busy: 95 * second, Items: 100}
	want := "38% busy at 212 W, 21.2 kJ, 212 J per item; its items leave it idle: try more slots"
	var b bytes.Buffer
	(&ending{Summary: gpumux.Summary{Items: 100, GPU: use}}).print(&b)
	require.Contains(t, b.String(), "  GPU        "+want)
	for _, d := range []*starter.Detail{
		{MapInfo: starter.MapInfo{Status: starter.StatusRunning}, Progress: &gpumux.Progress{Succeeded: 90, Failed: 10, GPU: use}},
		{MapInfo: starter.MapInfo{Status: starter.StatusCompleted}, Summary: &gpumux.Summary{Items: 100, GPU: use}},
	} {
		b.Reset()
		report.Detail(&b, d, nil, "", noon)
		require.Contains(t, b.String(), "GPU        "+want)
	}
	lines := report.StageLines([]gpumux.StageProgress{{Task: "embed", Succeeded: 100, GPU: use}})
	require.Contains(t, lines[0], "  GPU "+want)
	require.Contains(t, contract.Details(gpumux.Progress{Succeeded: 100, GPU: use}, nil), "\nGPU: "+want)
}
