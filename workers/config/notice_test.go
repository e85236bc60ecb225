package config

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNotice_Load(t *testing.T) {
	dir := site(t)
	c, err := load(t, dir, `
metrics: :9464
backlog: [gpu, cpu]
notice: {url: "http://metadata.google.internal/x", headers: {Metadata-Flavor: Google}, token: "http://169.254.169.254/latest/api/token"}
pools: [{name: cpu, devices: cpu}]
tasks: {t: {command: [true]}}`)
	require.NoError(t, err)
	require.NoError(t, c.Validate(twoGPUs(t)))
	require.Equal(t, "Google", c.Notice.Headers["Metadata-Flavor"])
	require.Empty(t, c.NoticeFile())
	c.Notice = Notice{File: "notice"}
	require.Equal(t, filepath.Join(dir, "notice"), c.NoticeFile())
}

func TestNotice_Mistakes(t *testing.T) {
	c, err := load(t, site(t), `
backlog: [GPU]
notice: {file: a, url: "metadata/x"}
pools: [{name: cpu, devices: cpu}]
tasks: {t: {command: [true]}}`)
	require.NoError(t, err)
	err = c.Validate(twoGPUs(t))
	for _, text := range []string{"3: notice: give file, or url", `notice.url: "metadata/x" is not an http URL`, "backlog: is a metric; give metrics too", "backlog[0]: "} {
		require.ErrorContains(t, err, text)
	}
	c.Notice = Notice{Token: "http://a/b"}
	require.ErrorContains(t, c.Validate(twoGPUs(t)), "notice: give file, or url")
}
