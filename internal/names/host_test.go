package names_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/names"
)

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:8000": true, "localhost": true, "[::1]:80": true, "::1": true, "[::1]": true, "127.8.9.10": true, "LocalHost:80": true,
		":8000": false, "0.0.0.0:80": false, "": false, "evil.example": false, "127.0.0.1.evil.example:80": false, "localhost.:1": false} {
		require.Equal(t, want, names.Loopback(address), address)
	}
}
