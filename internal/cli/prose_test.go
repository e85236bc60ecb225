package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestNewLog_AFaultIsASentence(t *testing.T) {
	var lines strings.Builder
	log := newLog(&lines, false).With(zap.String("pool", "cpu"))
	log.Warn("item failed", zap.String("map", "one"), zap.Int("index", 3), zap.String("item", "7"), zap.String("fault", "task_error: no three"))
	log.Warn("the disk is full", zap.String("path", "/x"))
	require.Regexp(t, `^\d\d:\d\d:\d\d\tWARN\titem failed: map one, item 3 = 7: task_error: no three\n`+
		`\d\d:\d\d:\d\d\tWARN\tthe disk is full\t\{"pool": "cpu", "path": "/x"\}\n$`, lines.String())
}
