package local

import (
	"os"
	"slices"
	"strings"

	"github.com/gpumux/gpumux/internal/launch"
)

// harmless are variables of the user's shell that tasks on the user's own machine see
// without being asked for. None is a credential, and none chooses a device.
var harmless = strings.Fields(`
HF_HOME HF_HUB_CACHE HF_ASSETS_CACHE HF_XET_CACHE HF_DATASETS_CACHE HUGGINGFACE_HUB_CACHE TRANSFORMERS_CACHE SENTENCE_TRANSFORMERS_HOME
TORCH_HOME TORCH_EXTENSIONS_DIR TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR CUDA_CACHE_PATH CUPY_CACHE_DIR NUMBA_CACHE_DIR KERAS_HOME
TFHUB_CACHE_DIR JAX_COMPILATION_CACHE_DIR VLLM_CACHE_ROOT NLTK_DATA PYTHONPATH R_LIBS

HF_HUB_OFFLINE HF_DATASETS_OFFLINE TRANSFORMERS_OFFLINE HF_ENDPOINT HF_HUB_DOWNLOAD_TIMEOUT HF_HUB_ETAG_TIMEOUT HF_HUB_DISABLE_XET
HF_HUB_ENABLE_HF_TRANSFER HF_HUB_DISABLE_TELEMETRY HF_HUB_DISABLE_PROGRESS_BARS HF_HUB_DISABLE_SYMLINKS_WARNING
http_proxy https_proxy no_proxy all_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY REQUESTS_CA_BUNDLE CURL_CA_BUNDLE

PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF PYTORCH_NVML_BASED_CUDA_CHECK TORCH_CUDA_ARCH_LIST XLA_FLAGS XLA_CLIENT_MEM_FRACTION
XLA_PYTHON_CLIENT_PREALLOCATE XLA_PYTHON_CLIENT_ALLOCATOR JAX_ENABLE_X64 JAX_DEFAULT_MATMUL_PRECISION JAX_TRACEBACK_FILTERING
TF_XLA_FLAGS TF_GPU_ALLOCATOR TF_FORCE_GPU_ALLOW_GROWTH TF_CPP_MIN_LOG_LEVEL TF_ENABLE_ONEDNN_OPTS TF_DETERMINISTIC_OPS
TF_CUDNN_DETERMINISTIC TF_USE_LEGACY_KERAS KERAS_BACKEND CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_DEVICE_MAX_CONNECTIONS
CUBLAS_WORKSPACE_CONFIG NVIDIA_TF32_OVERRIDE NCCL_DEBUG NCCL_P2P_DISABLE NCCL_IB_DISABLE NCCL_SOCKET_IFNAME TOKENIZERS_PARALLELISM
TRANSFORMERS_VERBOSITY VLLM_ATTENTION_BACKEND VLLM_LOGGING_LEVEL VLLM_USE_V1 VLLM_WORKER_MULTIPROC_METHOD

OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS NUMBA_NUM_THREADS
`)

var (
	// frameworks begin the names that a user expects a task to see.
	frameworks = []string{"HF_", "TRANSFORMERS_", "TORCH", "PYTORCH_", "CUDA_", "XLA_", "JAX_", "TF_", "NCCL_", "VLLM_", "WANDB_"}
	// settled are names of frameworks that a task has anyway.
	settled = []string{"CUDA_HOME", "CUDA_PATH", "JAX_PLATFORMS"}
)

// PassedOn splits this environment. A task on the user's own machine sees pass. left are
// variables of frameworks that it does not see: credentials, and unlisted names. A value
// with an @ may be a URL with a password.
func PassedOn(asked []string) (pass, left []string) {
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		listed := slices.Contains(harmless, name)
		switch {
		case slices.Contains(asked, name):
		case listed && !strings.Contains(value, "@"):
			pass = append(pass, name)
		case listed, slices.ContainsFunc(frameworks, func(begin string) bool { return strings.HasPrefix(name, begin) }) && !ours(name):
			left = append(left, name)
		}
	}
	slices.Sort(left)
	return append(slices.Clone(asked), pass...), left
}

// ours reports whether no notice is due for a variable that stays behind: the slot sets
// it, the task has it, it names an image's release, or it is Terraform's.
func ours(name string) bool {
	return slices.Contains(settled, name) || launch.Refused(name) != "" || strings.HasSuffix(name, "_VERSION") ||
		strings.HasPrefix(name, "TF_VAR_") || strings.HasPrefix(name, "TF_CLI_")
}
