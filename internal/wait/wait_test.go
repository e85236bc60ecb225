package wait

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// noted is a test that notes why it ended.
type noted struct {
	testing.TB
	said string
}

func (n *noted) Fatal(args ...any) {
	n.said = fmt.Sprint(args...)
	runtime.Goexit()
}

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, asked := time.Now(), 0
		For(t, func() bool { asked++; return asked == 5 }, time.Minute, time.Second)
		require.Equal(t, 4*time.Second, time.Since(begun))

		n := &noted{TB: t}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			For(n, func() bool { return false }, time.Minute, time.Second, "%d of %s", 3, "them")
			n.said = "it went on"
		}()
		<-ended
		require.Equal(t, "it did not come to it within 1m0s: 3 of them", n.said)
	})
}
