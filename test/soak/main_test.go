//go:build soak

package soak

import (
	"os"
	"testing"

	"github.com/gpumux/gpumux/test/programtest"
)

func TestMain(m *testing.M) { os.Exit(programtest.Main(m)) }
