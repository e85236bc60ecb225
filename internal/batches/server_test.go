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
