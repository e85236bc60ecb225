package batches

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A batch may be for what the task takes.
func TestEndpoints_AreTheTasks(t *testing.T) {
	python, err := os.ReadFile("../../clients/python/gpumux/llm/__init__.py")
	require.NoError(t, err)
	urls := regexp.MustCompile(`(?s)\nURLS = \((.*?)\)`).FindStringSubmatch(strings.Replace(string(python), "    CHAT,", `"/v1/chat/completions",`, 1))
	require.Len(t, urls, 2)
	found := []string{}
	for _, quoted := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(urls[1], -1) {
		found = append(found, quoted[1])
	}
	require.Equal(t, found, Endpoints)
}

func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:8000": true, "localhost": true, "[::1]:80": true, "::1": true, "[::1]": true, "127.8.9.10": true,
		":8000": false, "0.0.0.0:80": false, "": false, "evil.example": false, "127.0.0.1.evil.example:80": false, "localhost.:1": false} {
		require.Equal(t, want, Loopback(address), address)
	}
}
