package diagnosis

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/gpumux/gpumux"
)

// rule says what one wording of a framework's error means.
type rule struct {
	stack string
	codes []int
	// class and text must both match; nil matches anything. Class rules skip the tail.
	class, text pattern
	// also is a class whose words count here, though its words do not elsewhere.
	also string
	kind gpumux.FaultKind
	// poisoned: the process can use the device no more. device: the device is suspect.
	// mpsWide: under MPS the neighbours are ruined too. blameless: the item did nothing.
	poisoned, device, mpsWide, blameless bool
	// weak: the text fits several causes; the output may tell which.
	weak bool
	// killed: holds only when the kernel's counter of memory kills moved.
	killed bool
	// either: the framework says the same of the host's memory. hidden: it says the same
	// where a slot on the CPU hides the GPUs.
	either, hidden bool
	// child is how a process of the framework's own says in the output what it died of.
	child pattern
	hint  string
}

const (
	hintKernel = "a kernel ruined the device's context, so the process is replaced; find the kernel by running the item alone" +
		" with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer"
	hintAssert = "an index or a value is out of range in a kernel (often a label or a token id); the process is replaced; run the" +
		" item on the CPU, or with CUDA_LAUNCH_BLOCKING=1, to see the line"
	hintFork   = "the process forked after it had used CUDA; let multiprocessing use the 'spawn' start method (mp_context=\"spawn\")"
	hintDevice = "the device is probed before it gets more work; see `nvidia-smi` and the kernel's log for NVRM: Xid lines"
	hintWeak   = "this may mean too little device memory, but also arguments that the library does not support; if more memory" +
		" does not help, run the item alone with CUDA_LAUNCH_BLOCKING=1"
	hintShm     = "/dev/shm is full; give the worker's container more shared memory (--shm-size), or use fewer loader processes"
	hintUpdated = "the NVIDIA driver was updated beneath: its library and its kernel module are of two versions; restart the worker or the" +
		" command, and where that does not help the host; in a container, take out the CUDA compatibility libraries"
	hintHidden = "the slot is on the CPU and hides all GPUs from the task: use a pool of GPUs (--pool gpu), or let the task compute on the CPU"
	hintVLLM   = "vLLM takes gpu_memory_utilization of the whole device, whatever the slot's budget: set it to the budget's share of the" +
		" device (with several slots less than 1 divided by their number), or lower max_model_len"
	hintBuild = "the framework was built for other GPUs or another driver; install the build that fits this host"
	hintMPS   = "the MPS server takes no client right now; it is retried when a client has left or the server has recovered"
)

// rules are tried in this order: a ruined context outweighs a lack of memory, the
// device's memory the host's, a class its text. Each is tried against the whole chain,
// outermost first.
var rules = []rule{
	// The device itself. NVML and the driver say so without doubt.
	{stack: "NVML", text: re(`GPU is lost|ERROR_GPU_IS_LOST|has fallen off the bus`), kind: gpumux.FaultDeviceLost, poisoned: true, device: true, mpsWide: true, blameless: true},
	{stack: "CUDA", codes: []int{214}, text: re(`uncorrectable ECC error|ErrorECCUncorrectable|ERROR_ECC_UNCORRECTABLE`), kind: gpumux.FaultDeviceLost, poisoned: true, device: true, mpsWide: true, blameless: true},
	{stack: "CUDA", codes: []int{220}, text: re(`uncorrectable NVLink error|ErrorNvlinkUncorrectable|ERROR_NVLINK_UNCORRECTABLE`), kind: gpumux.FaultDeviceLost, poisoned: true, device: true, mpsWide: true, blameless: true},

	// Ruined contexts: NVIDIA documents that the process has to be relaunched.
	{stack: "CUDA", codes: []int{710}, text: re(`device-side assert triggered|ErrorAssert\b|CUDA_ERROR_ASSERT\b`), kind: gpumux.FaultCrash, poisoned: true, mpsWide: true, hint: hintAssert},
	{stack: "CUDA kernel's assert", text: re(`block: \[\d+,\s?\d+,\s?\d+\], thread: \[\d+,\s?\d+,\s?\d+\] Assertion .* failed`), kind: gpumux.FaultCrash, poisoned: true, mpsWide: true, hint: hintAssert},
	{stack: "CUDA", codes: []int{700}, text: re(`illegal memory access was encountered|ErrorIllegalAddress|ERROR_ILLEGAL_ADDRESS`), kind: gpumux.FaultCrash, poisoned: true, mpsWide: true, hint: hintKernel},
	{stack: "CUDA", codes: []int{702}, text: re(`launch timed out and was terminated|ErrorLaunchTimeout|ERROR_LAUNCH_TIMEOUT`), kind: gpumux.FaultCrash, poisoned: true, mpsWide: true, hint: hintKernel},
	{stack: "CUDA", codes: []int{714}, text: re(`hardware stack error|ErrorHardwareStackError|ERROR_HARDWARE_STACK_ERROR`), kind: gpumux.FaultCrash, poisoned: true, device: true, mpsWide: true, hint: hintKernel},
	{stack: "CUDA", codes: []int{715}, text: re(`illegal instruction was encountered|ErrorIllegalInstruction|ERROR_ILLEGAL_INSTRUCTION`), kind: gpumux.FaultCrash, poisoned: true, mpsWide: true, hint: hintKernel},
	{stack: "CUDA", codes: []int{716}, text: re(`misaligned address|ErrorMisalignedAddress|ERROR_MISALIGNED_ADDRESS`), kind: gpumux.FaultCrash, poisoned: true, mpsWide: true, hint: hintKernel},
	{stack: "CUDA", codes: []int{717}, text: re(`operation not supported on global/shared address space|ErrorInvalidAddressSpace|ERROR_INVALID_ADDRESS_SPACE`), kind: gpumux.FaultCrash, poisoned: true, mpsWide: true, hint: hintKernel},
	{stack: "CUDA", codes: []int{718}, text: re(`invalid program counter|cudaErrorInvalidPc|ERROR_INVALID_PC`), kind: gpumux.FaultCrash, poisoned: true, mpsWide: true, hint: hintKernel},
	{stack: "CUDA", codes: []int{719}, text: re(`unspecified launch failure|cudaErrorLaunchFailure|ERROR_LAUNCH_FAILED`), kind: gpumux.FaultCrash, poisoned: true, mpsWide: true, hint: hintKernel},
	{stack: "CUDA", codes: []int{721}, text: re(`ErrorTensorMemoryLeak|ERROR_TENSOR_MEMORY_LEAK`), kind: gpumux.FaultCrash, poisoned: true, mpsWide: true, hint: hintKernel},
	{stack: "CUDA", codes: []int{226}, text: re(`invalid access of peer GPU memory over nvlink|cudaErrorContained|CUDA_ERROR_CONTAINED`), kind: gpumux.FaultCrash, poisoned: true, device: true, mpsWide: true, hint: hintDevice},
	{stack: "CUDA", codes: []int{911}, text: re(`cudaErrorExternalDevice|CUDA_ERROR_EXTERNAL_DEVICE|async error has occ?urr?ed in external entity`), kind: gpumux.FaultCrash, poisoned: true, device: true, mpsWide: true, hint: hintDevice},
	{stack: "CUDA", codes: []int{709}, text: re(`context is destroyed|cudaErrorContextIsDestroyed|CUDA_ERROR_CONTEXT_IS_DESTROYED`), kind: gpumux.FaultCrash, poisoned: true, hint: hintKernel},

	// MPS: between process and server, so no fault of the item.
	{stack: "MPS", codes: []int{805}, text: re(`ErrorMpsConnectionFailed|ERROR_MPS_CONNECTION_FAILED|MPS client failed to connect to`), kind: gpumux.FaultCrash, poisoned: true, blameless: true, hint: "no MPS server answers in CUDA_MPS_PIPE_DIRECTORY; check that its daemon runs and that both name the same folder"},
	{stack: "MPS", codes: []int{806}, text: re(`ErrorMpsRpcFailure|ERROR_MPS_RPC_FAILURE|call between the MPS server and the MPS client failed`), kind: gpumux.FaultCrash, poisoned: true, device: true, mpsWide: true, blameless: true, hint: "the MPS server is gone; all its clients are replaced"},
	{stack: "MPS", codes: []int{807}, text: re(`ErrorMpsServerNotReady|ERROR_MPS_SERVER_NOT_READY|MPS server is not ready`), kind: gpumux.FaultCrash, poisoned: true, mpsWide: true, blameless: true, hint: hintMPS},
	{stack: "MPS", codes: []int{808}, text: re(`ErrorMpsMaxClientsReached|ERROR_MPS_MAX_CLIENTS_REACHED|resources required to create (?:an )?MPS client`), kind: gpumux.FaultCrash, poisoned: true, blameless: true, hint: hintMPS + "; fewer slots on the device avoid it"},
	{stack: "MPS", codes: []int{809}, text: re(`ErrorMpsMaxConnectionsReached|ERROR_MPS_MAX_CONNECTIONS_REACHED|resources required to support device connections`), kind: gpumux.FaultCrash, poisoned: true, blameless: true, hint: hintMPS + "; fewer slots on the device, or a lower CUDA_DEVICE_MAX_CONNECTIONS, avoid it"},
	{stack: "MPS", codes: []int{810}, text: re(`ErrorMpsClientTerminated|ERROR_MPS_CLIENT_TERMINATED|MPS client has been terminated by the (?:MPS )?server`), kind: gpumux.FaultCrash, poisoned: true, blameless: true, hint: "the MPS server ended this client, to make room or by command; the item is tried in a new process"},

	// Device memory, by class.
	{stack: "PyTorch", class: re(`^torch\.(?:\w+\.)?OutOfMemoryError$`), kind: gpumux.FaultDeviceOOM},
	{stack: "CuPy", class: re(`^cupy[\w.]*\.OutOfMemoryError$`), kind: gpumux.FaultDeviceOOM},
	{stack: "CUDA.jl", class: re(`(?:^|\.)OutOfGPUMemoryError$`), kind: gpumux.FaultDeviceOOM},
	{stack: "JAX", class: re(`(?:Jax|Xla)RuntimeError$`), text: re(`out of memory|RESOURCE_EXHAUSTED: Failed to allocate|Cuda failure(?: \d+)? 'out of memory'`), kind: gpumux.FaultDeviceOOM, either: true},
	{stack: "TensorFlow on the CPU", class: re(`ResourceExhaustedError$`), text: re(`OOM when allocating tensor[^\n]* by allocator (?:mkl_)?cpu`), kind: gpumux.FaultHostOOM},
	{stack: "TensorFlow", class: re(`ResourceExhaustedError$`), text: re(`OOM when allocating|out of memory|failed to allocate|unable to allocate`), kind: gpumux.FaultDeviceOOM},
	{stack: "Python in TensorFlow", class: re(`ResourceExhaustedError$`), text: re(`[\s:.]_?(?:Array)?MemoryError: `), kind: gpumux.FaultHostOOM},
	{stack: "RMM", class: re(`^MemoryError$`), text: re(`out_of_memory|Maximum pool size exceeded|Exceeded memory limit|cudaErrorMemoryAllocation`), kind: gpumux.FaultDeviceOOM},
	{stack: "vLLM", also: "ValueError", text: re(`No available memory for the cache blocks|KV cache is needed, which is larger than the available KV cache memory|Free memory on device .* is less than desired GPU memory utilization`), kind: gpumux.FaultDeviceOOM, either: true, hint: hintVLLM},

	// Device memory, by text: classes get lost in R, in wrappers and in other languages.
	{stack: "PyTorch", text: re(`\b(?:CUDA|MPS backend) out of memory\b|Tried to allocate [\d.]+ ?[KMGT]?i?B[^\n]*total capac|Allocation on device \d+ would exceed allowed memory`), kind: gpumux.FaultDeviceOOM},
	{stack: "TensorFlow on the CPU", text: re(`OOM when allocating tensor[^\n]* by allocator (?:mkl_)?cpu`), kind: gpumux.FaultHostOOM},
	{stack: "TensorFlow", text: re(`OOM when allocating tensor`), kind: gpumux.FaultDeviceOOM},
	{stack: "JAX/XLA", text: re(`RESOURCE_EXHAUSTED:[^\n]{0,300}(?:out of memory|failed to allocate)|Resource exhausted: (?:Out of memory|Failed to allocate)`), kind: gpumux.FaultDeviceOOM, either: true},
	{stack: "CuPy", text: re(`Out of memory allocating [\d,]+ bytes \(allocated so far`), kind: gpumux.FaultDeviceOOM},
	{stack: "Numba", text: re(`Call to cuMem\w* results in CUDA_ERROR_OUT_OF_MEMORY`), kind: gpumux.FaultDeviceOOM},
	{stack: "RMM", text: re(`std::bad_alloc: out_of_memory|rmm::out_of_memory|RMM failure[^\n]*(?:Maximum pool size exceeded|Exceeded memory limit)|RMM_FAIL[^\n]*out_of_memory`), kind: gpumux.FaultDeviceOOM},
	{stack: "ONNX Runtime", text: re(`Failed to allocate memory for requested buffer of size|Available memory of \d+ is smaller than requested bytes of`), kind: gpumux.FaultDeviceOOM, either: true},
	{stack: "ggml", text: re(`cudaMalloc\w* failed: out of memory|(?:failed|unable) to allocate (?:CUDA|Vulkan)\d*(?:_Split)? buffer|ggml_vulkan: Device memory allocation of size \d+ failed`), kind: gpumux.FaultDeviceOOM},
	{stack: "CUDA.jl", text: re(`Out of GPU memory trying to allocate`), kind: gpumux.FaultDeviceOOM},
	{stack: "CUDA", codes: []int{2}, text: re(`CUDA(?: driver| runtime)? error: out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|Cuda failure(?: \d+)? 'out of memory'`), kind: gpumux.FaultDeviceOOM},
	{stack: "cuBLAS and kin", text: re(`CUBLAS_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED when calling .?cublasCreate|CUDNN_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED|CUSPARSE_STATUS_(?:ALLOC_FAILED|INSUFFICIENT_RESOURCES)|CUFFT_ALLOC_FAILED|CURAND_STATUS_ALLOCATION_FAILED`), kind: gpumux.FaultDeviceOOM, weak: true},
	{stack: "cuDNN", text: re(`CUDNN_STATUS_NOT_SUPPORTED|Unable to find a valid cuDNN algorithm to run convolution`), kind: gpumux.FaultDeviceOOM, weak: true, hint: hintWeak},

	// Host memory.
	{stack: "PyTorch", text: re(`DefaultCPUAllocator: (?:can't allocate|not enough) memory`), kind: gpumux.FaultHostOOM},
	{stack: "shared memory", text: re(`insufficient shared memory \(shm\)|killed by signal: Bus error`), kind: gpumux.FaultHostOOM, hint: hintShm},
	{stack: "RMM", text: re(`std::bad_alloc: CUDA error`), kind: gpumux.FaultCrash, poisoned: true, weak: true, hint: hintKernel},
	{stack: "NumPy", class: re(`(?:^|\.)_?ArrayMemoryError$`), kind: gpumux.FaultHostOOM},
	{stack: "Arrow", class: re(`(?:^|\.)ArrowMemoryError$`), kind: gpumux.FaultHostOOM},
	{stack: "Python", class: re(`^MemoryError$`), kind: gpumux.FaultHostOOM},
	{stack: "Julia", class: re(`^(?:Core\.|Base\.)?OutOfMemoryError$`), kind: gpumux.FaultHostOOM},
	{stack: "NumPy", text: re(`Unable to allocate [\d.]+ \wi?B for an array with shape`), kind: gpumux.FaultHostOOM},
	{stack: "Java", text: re(`java\.lang\.OutOfMemoryError`), kind: gpumux.FaultHostOOM},
	{stack: "Julia", text: re(`(?m:^ERROR: .*OutOfMemoryError\(\))`), kind: gpumux.FaultHostOOM},
	{stack: "R", text: re(`cannot allocate vector of size`), kind: gpumux.FaultHostOOM},
	{stack: "C++", text: re(`std::bad_alloc`), kind: gpumux.FaultHostOOM},
	{stack: "Rust", text: re(`(?m:^memory allocation of \d+ bytes failed)`), kind: gpumux.FaultHostOOM},
	{stack: "Go", text: re(`(?m:^(?:fatal error: )?runtime: (?:out of memory|cannot allocate memory))`), kind: gpumux.FaultHostOOM},
	{stack: "errno", text: re(`\[Errno 12\] Cannot allocate memory`), kind: gpumux.FaultHostOOM},
	{stack: "a killed child", text: re(`killed by signal: Killed|exited unexpectedly|Signals\.SIGKILL|terminated abruptly|unexpectedly terminated|SIGKILL\(-9\)`), killed: true, kind: gpumux.FaultHostOOM},

	// A child or a call that failed for a reason which the process may have printed.
	{stack: "a dead child", text: re(`DataLoader worker \(pid\(?s?\)? ?[\d, ]*\) (?:is killed by signal|exited unexpectedly)|process pool was terminated abruptly|worker process managed by the executor was unexpectedly terminated`), kind: gpumux.FaultCrash, weak: true, hint: "a child of the task process died; what it printed, if anything, is in the tail"},
	{stack: "NCCL", text: re(`unhandled (?:cuda|system) error|ncclUnhandledCudaError`), kind: gpumux.FaultCrash, poisoned: true, weak: true, hint: "set NCCL_DEBUG=WARN in the task's env to see which call failed"},
	{stack: "vLLM", text: re(`Engine core (?:proc\w* )?initialization failed|EngineCore failed to start`), kind: gpumux.FaultTaskError, weak: true, child: exact(`(?m)^\([^)]*\) (?:ERROR .*\] )?(\w[\w.]*(?:Error|Exception): .+)$`), hint: "it is vLLM's engine, a process of its own, that did not start; all that it said is in the output above"},
	{stack: "CUDA libraries", text: re(`(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)`), kind: gpumux.FaultCrash, poisoned: true, weak: true, hint: hintKernel},

	// Errors of set-up, which no retry cures, before device states that look alike.
	{stack: "CUDA after fork", text: re(`Cannot re-initialize CUDA in forked subprocess`), kind: gpumux.FaultTaskError, hint: hintFork},
	{stack: "Triton", class: re(`(?:^|\.)OutOfResources$`), kind: gpumux.FaultTaskError, hint: "a kernel wants more shared memory per block than the GPU has; smaller blocks or fewer stages help, device memory does not"},
	{stack: "XLA", text: re(`Shared memory size limit exceeded`), kind: gpumux.FaultTaskError, hint: "a kernel wants more shared memory per block than the GPU has; smaller blocks or fewer stages help, device memory does not"},
	{stack: "CUDA", codes: []int{701}, text: re(`too many resources requested for launch|ErrorLaunchOutOfResources|ERROR_LAUNCH_OUT_OF_RESOURCES`), kind: gpumux.FaultTaskError, hint: "a kernel wants more registers or threads than the GPU has; a smaller block helps"},
	{stack: "CUDA", codes: []int{35}, text: re(`driver version is insufficient`), kind: gpumux.FaultTaskError, hint: hintBuild},
	{stack: "CUDA", codes: []int{209, 222}, text: re(`no kernel image is available|unsupported toolchain|ErrorNoKernelImageForDevice|ERROR_NO_BINARY_FOR_GPU|ErrorUnsupportedPtxVersion|ERROR_UNSUPPORTED_PTX_VERSION`), kind: gpumux.FaultTaskError, hint: hintBuild},
	{stack: "CUDA", codes: []int{101}, text: re(`invalid device ordinal|cudaErrorInvalidDevice\b|ERROR_INVALID_DEVICE\b`), kind: gpumux.FaultTaskError, hint: "a task process sees only the devices of its slot, numbered from 0"},

	// The device or its driver may be unwell; its health decides.
	{stack: "CUDA", codes: []int{3}, text: re(`CUDA(?: driver| runtime)? error: initialization error|cudaErrorInitializationError|CUDA_ERROR_NOT_INITIALIZED`), kind: gpumux.FaultCrash, poisoned: true, device: true, hint: hintDevice + "; or " + hintFork},
	{stack: "CUDA", codes: []int{46}, text: re(`CUDA-capable devices? ?(?:\(s\) is/are|are|is) busy or unavailable|ErrorDevicesUnavailable|ErrorDeviceUnavailable|ERROR_DEVICE_UNAVAILABLE`), kind: gpumux.FaultCrash, poisoned: true, device: true, blameless: true, hint: "another process holds the device, or it is unwell; " + hintDevice},
	{stack: "CUDA", codes: []int{100}, text: re(`no CUDA-capable device is detected|cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE|No CUDA GPUs are available`), kind: gpumux.FaultCrash, poisoned: true, device: true, hidden: true, hint: hintDevice},
	{stack: "CUDA", codes: []int{802}, text: re(`ErrorSystemNotReady|ERROR_SYSTEM_NOT_READY|system not yet initialized`), kind: gpumux.FaultCrash, poisoned: true, device: true, hint: "the driver's services are not up; on NVSwitch machines start nvidia-fabricmanager"},
	{stack: "CUDA", codes: []int{803}, text: re(`ErrorSystemDriverMismatch|ERROR_SYSTEM_DRIVER_MISMATCH|unsupported display driver ?/ ?cuda driver combination`), kind: gpumux.FaultCrash, poisoned: true, device: true, blameless: true, hint: hintUpdated},
	{stack: "CUDA", codes: []int{999}, text: re(`CUDA(?: driver| runtime)? error: unknown error|cudaErrorUnknown|CUDA_ERROR_UNKNOWN`), kind: gpumux.FaultCrash, poisoned: true, device: true, hint: hintDevice},
}

type subject struct {
	class, text string
	// calm is a tail without progress logs.
	calm string
	tail bool
	// mute: whoever raised it says nothing of devices, whatever its words are. item is what
	// the words may come from.
	mute bool
	item []byte
}

// finding is a rule that matches, with the text and offset, or the error number.
type finding struct {
	rule    *rule
	subject subject
	text    string
	at      int
	code    int
}

// match tries the admitted rules in order. The code belongs to the first subject.
func match(subjects []subject, code int, admit func(*rule) bool) (finding, bool) {
	texts := make([]struct{ all, calm scanned }, len(subjects))
	for i, s := range subjects {
		texts[i].all, texts[i].calm = scan(s.text), scan(s.calm)
	}
	for i := range rules {
		r := &rules[i]
		if !admit(r) {
			continue
		}
		for j, s := range subjects {
			text := texts[j].all
			if s.tail && r.kind.Memory() {
				text = texts[j].calm
			}
			if at, ok := r.matches(s, text); ok {
				return finding{rule: r, subject: s, text: text.text, at: at}, true
			}
			if j == 0 && code != 0 && slices.Contains(r.codes, code) && !otherCodes().MatchString(s.class) {
				return finding{rule: r, subject: s, text: text.text, code: code}, true
			}
		}
	}
	return finding{}, false
}

// otherCodes are the classes whose numbers are not CUDA's own.
var otherCodes = re(`cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|nccl|nvrtc`)

// matches reports whether the rule fits the text, and where: in a tail, the last place.
func (r *rule) matches(s subject, t scanned) (at int, ok bool) {
	if r.class != nil && (s.tail || !r.class().MatchString(s.class)) {
		return 0, false
	}
	if r.text == nil {
		return 0, true
	}
	if s.mute && r.also != s.class {
		return 0, false
	}
	if r.text().mayMatch(t.small) {
		found := r.text().FindAllStringIndex(t.text, -1)
		if found != nil && !bytes.Contains(s.item, []byte(t.text[found[0][0]:found[0][1]])) {
			if s.tail {
				return found[len(found)-1][0], true
			}
			return found[0][0], true
		}
	}
	for _, n := range t.numbers {
		if slices.Contains(r.codes, n.code) && !bytes.Contains(s.item, []byte(n.text)) {
			return n.at, true
		}
	}
	return 0, false
}

// diagnosis is what the rule concludes, with the framework's message and sizes.
func (f finding) diagnosis() Diagnosis {
	text := f.text
	start := strings.LastIndexByte(text[:f.at], '\n') + 1
	d := plain(f.rule.kind, strings.TrimPrefix(oneLine(text[start:]), "what():  "))
	d.Fault.Class = f.subject.class
	switch {
	case d.Fault.Message == "":
		d.Fault.Message = f.message()
	case f.code != 0:
		// The number may say something else than the message.
		d.Fault.Message += fmt.Sprintf(" (CUDA error %d)", f.code)
	}
	d.Fault.Hint = f.rule.hint
	d.Poisoned, d.Device, d.MPSWide, d.Blameless = f.rule.poisoned, f.rule.device, f.rule.mpsWide, f.rule.blameless
	d.either, d.hidden = f.rule.either, f.rule.hidden
	if f.rule.kind.Memory() {
		if f.subject.tail {
			text = excerpt(text, f.at)
		}
		readSizes(&d.Fault, text)
	}
	return d
}

func (f finding) message() string {
	switch {
	case f.rule.kind == gpumux.FaultDeviceOOM:
		return "out of device memory (" + f.rule.stack + ")"
	case f.rule.kind == gpumux.FaultHostOOM:
		return "out of host memory (" + f.rule.stack + ")"
	}
	return fmt.Sprintf("CUDA error %d", f.code)
}

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
