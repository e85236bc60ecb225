package rig

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// failed is a test that notes why it ended.
type failed struct {
	testing.TB
	output string
}

func (n *failed) Fatal(args ...any) {
	n.output = fmt.Sprint(args...)
	runtime.Goexit()
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, asked := time.Now(), 0
		Wait(t, func() bool { asked++; return asked == 5 }, time.Minute, time.Second)
		require.Equal(t, 4*time.Second, time.Since(begun))

		n := &failed{TB: t}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Wait(n, func() bool { return false }, time.Minute, time.Second, "%d of %s", 3, "them")
			n.output = "it went on"
		}()
		<-ended
		require.Equal(t, "it did not come to it within 1m0s: 3 of them", n.output)
	})
}
