package local

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPassedOn(t *testing.T) {
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value) // puts it back
		require.NoError(t, os.Unsetenv(name))
	}
	for name, value := range map[string]string{
		"HF_HOME": "/models", "PYTHONPATH": "/lib", "https_proxy": "http://proxy:3128", "HTTP_PROXY": "http://me:secret@proxy:3128", "OMP_NUM_THREADS": "4",
		"PYTORCH_ALLOC_CONF": "expandable_segments:True", "HF_TOKEN": "hf_secret", "WANDB_API_KEY": "secret", "AWS_SECRET_ACCESS_KEY": "secret",
		"TF_NEW_SWITCH": "1", "CUDA_VISIBLE_DEVICES": "0", "CUDA_HOME": "/usr/local/cuda", "NCCL_VERSION": "2.21", "EDITOR": "vi", "TF_VAR_db": "x", "DATA": "/data",
	} {
		t.Setenv(name, value)
	}
	pass, left := PassedOn([]string{"DATA", "HF_TOKEN"})
	require.ElementsMatch(t, []string{"DATA", "HF_TOKEN", "HF_HOME", "PYTHONPATH", "https_proxy", "OMP_NUM_THREADS", "PYTORCH_ALLOC_CONF"}, pass)
	require.Equal(t, []string{"HTTP_PROXY", "TF_NEW_SWITCH", "WANDB_API_KEY"}, left)
	_, left = PassedOn(nil)
	require.Contains(t, left, "HF_TOKEN")
}

// What nobody asked for must hold no credential.
func TestPassedOn_ListsNoCredential(t *testing.T) {
	require.NotContains(t, harmless, "")
	for _, name := range harmless {
		for _, word := range []string{"TOKEN", "KEY", "SECRET", "PASSW", "AUTH", "CREDENTIAL", "VISIBLE"} {
			if name != "TOKENIZERS_PARALLELISM" {
				require.NotContains(t, strings.ToUpper(name), word)
			}
		}
	}
}
