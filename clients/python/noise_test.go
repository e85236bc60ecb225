package python_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoise_OutputNeverReachesTheWire(t *testing.T) {
	for _, c := range []struct {
		function string
		want     []string
		printed  string
	}{
		{"prints", []string{"0", "1", "2", "3", "4"}, "printed 4\n"},
		{"binary", []string{"0", "1", "2", "3", "4"}, "\xff\xfe"},
		{"closes", []string{"0", "1", "2", "3", "4"}, ""},
		{"replaces", []string{"0", "1", "2", "3", "4"}, ""},
		{"children", []string{"7", "7", "7", "7", "7"}, "child 4\n"},
		{"threads", []string{"0", "1", "2", "3", "4"}, "thread\n"},
		{"forks_behind_python", []string{"0", "0", "0", "0", "0"}, ""},
	} {
		t.Run(c.function, func(t *testing.T) {
			p := start(t, "noise.py:"+c.function)
			require.Equal(t, c.want, p.Values("0", "1", "2", "3", "4"))
			require.Contains(t, p.Printed(), c.printed)
		})
	}
}

func TestNoise_OutputOfAnItemEndsBeforeItsAnswer(t *testing.T) {
	p := start(t, "noise.py:prints")
	end := int64(0)
	for _, item := range []string{"1", "2", "3"} {
		got := p.Do(1, item)[0]
		require.Greater(t, got.Out, end)
		end = got.Out
		require.Equal(t, len(p.Printed()), int(end), "everything was flushed")
	}
	require.Contains(t, p.Printed(), "INFO:task:logged\n")
	require.Contains(t, p.Printed(), "no newline")
	require.Contains(t, p.Printed(), "to stderr\n")
}

func TestNoise_ForkedChildrenNeverAnswer(t *testing.T) {
	p := start(t, "noise.py:returns_in_child")
	require.Equal(t, []string{"0", "1", "9", "0"}, p.Values(`"return"`, `"raise"`, `"exit"`, `"return"`))
	require.Contains(t, p.Printed(), "ValueError: in the child")
}

func TestNoise_TheWireIsNotInherited(t *testing.T) {
	p := start(t, "noise.py:inherited")
	require.Equal(t, []string{`[true,false,"clean"]`}, p.Values("1"))
}

func TestNoise_ProcessPools(t *testing.T) {
	p := start(t, "noise.py:pools")
	require.Equal(t, []string{"[[0,1,4],[0,1,4]]"}, p.Values("3"))
}
