package slot

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestState_WhatMayFollow(t *testing.T) {
	for _, from := range States() {
		require.NotContains(t, next[from], from)
	}
	require.Equal(t, []State{Reclaiming}, next[Poisoned], "a poisoned process never runs another item")
	require.Empty(t, next[Stopped])
}
