package diagnosis

import (
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
)

// speakers are the exceptions whose words tell of devices and memory, by their class or
// its first part: what native code and frameworks raise. Anyone may raise a ValueError,
// or a class of its own, with a line of somebody's log in it.
var speakers = []string{
	"RuntimeError", "MemoryError", "OSError", "SystemError", // how Python's C interface and pybind11 raise
	"torch", "torchvision", "torchaudio", "jax", "jaxlib", "JaxRuntimeError", "XlaRuntimeError", "tensorflow", "tf", "triton",
	"cupy", "cupy_backends", "cupyx", "numba", "cuda", "pycuda", "pyopencl", "warp", "tinygrad", "paddle", "mxnet",
	"rmm", "cudf", "cuml", "cugraph", "nvidia", "pynvml",
	"onnxruntime", "vllm", "sglang", "ctranslate2", "llama_cpp", "deepspeed", "bitsandbytes", "accelerate",
	"ray", "dask", "distributed", "concurrent", "multiprocessing", "joblib", "billiard", // what a child of theirs said
	"simpleError", "error", "Rcpp::exception", "std::runtime_error", "std::bad_alloc", "runtime_error", "value_error", // R
	"CUDA", "AMDGPU", "OutOfMemoryError", "OutOfGPUMemoryError", "ErrorException", // Julia
	"errors", "fmt", "panic", "runtime", // Go
}

func speaks(class string) bool {
	first, _, _ := strings.Cut(class, ".")
	return class == "" || slices.Contains(speakers, first)
}

// admits reports whether a rule can hold where the evidence comes from.
func (e Evidence) admits(r *rule) bool {
	if r.killed && e.OOMKills == 0 {
		return false
	}
	// A slot on the CPU has no device that could be ill or full. A class is a type, whatever
	// it says.
	ofDevice := r.poisoned || r.device || r.kind == gpumux.FaultDeviceOOM
	return !e.OnCPU || !ofDevice || r.either || r.hidden || r.class != nil && r.text == nil
}
