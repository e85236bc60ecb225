package devserver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/dynamicconfig"
	"go.yaml.in/yaml/v3"
)

// complaints are what the server's own check finds in dynamic settings: unknown keys and
// values of a wrong type.
func complaints(t *testing.T, settings dynamicconfig.StaticClient) []error {
	t.Helper()
	file := map[string]any{}
	for key, value := range settings {
		if duration, ok := value.(time.Duration); ok {
			value = duration.String()
		}
		file[key.String()] = []any{map[string]any{"value": value}}
	}
	text, err := yaml.Marshal(file)
	require.NoError(t, err)
	loaded := dynamicconfig.LoadYamlFile(text)
	return append(loaded.Warnings, loaded.Errors...)
}

func TestSettings_KnownToTheServer(t *testing.T) {
	require.Empty(t, complaints(t, settings()))
	for key, value := range settings() {
		switch value.(type) {
		case int, bool, time.Duration:
		default:
			t.Errorf("%s is a %T: the server takes int, bool and time.Duration", key, value)
		}
	}
}

func TestSettings_CheckFindsMistakes(t *testing.T) {
	require.NotEmpty(t, complaints(t, dynamicconfig.StaticClient{dynamicconfig.MakeKey("history.noSuchSetting"): 1}))
	require.NotEmpty(t, complaints(t, dynamicconfig.StaticClient{dynamicconfig.TransferProcessorMaxPollRPS.Key(): "many"}))
}
