package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/process"
)

const otherUsers = `
pools:
  - {name: cpu, devices: cpu, user: "65534:65534"}
tasks:
  embed: {python: "embed.py:embed"}
  train: {command: ["./train"], user: "54321:54322"}
`

func TestUser_OfPoolsAndTasks(t *testing.T) {
	c, err := load(t, site(t), otherUsers)
	require.NoError(t, err)
	placements, tasks, err := c.Plan(onlyCPU(t))
	if os.Geteuid() != 0 {
		require.ErrorContains(t, err, "pools[0].user: this worker lacks CAP_SETUID")
		require.ErrorContains(t, err, "tasks.train.user: ")
		return
	}
	require.NoError(t, err)
	require.Equal(t, uint32(65534), placements[0].RunAs.UID)
	embed, err := tasks.Find("embed")
	require.NoError(t, err)
	require.Nil(t, embed.User, "it runs as its pool says")
	train, err := tasks.Find("train")
	require.NoError(t, err)
	home := filepath.Join(os.TempDir(), "gpumux-54321")
	require.Equal(t, &process.User{Name: "54321", UID: 54321, GID: 54322, Home: home}, train.User)
}

func TestUser_Mistakes(t *testing.T) {
	for text, want := range map[string]string{
		"no such user": `"no such user" is no user of this machine`,
		"54321":        `"54321" is no user of this machine; name one of /etc/passwd, or give numbers as user:group`,
		"54321:none":   `"none" is no group of this machine`,
		"0:0":          "root may do all that the worker may",
		"-1:5":         "is no user of this machine",
	} {
		_, err := lookupUser(text)
		require.ErrorContains(t, err, want, text)
	}
}
