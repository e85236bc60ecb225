package local

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/config"
)

// Task is something of the current folder rather than a name that workers know.
type Task struct {
	// Name is its name in maps and workers.
	Name string
	// Edition covers the code at FindTask.
	Edition string

	config config.Task
	// dir was the current folder; scope tells tasks of one name apart.
	dir, scope string
	code       launch.Code
	// wanted is the edition that the processes of a map must have.
	wanted string
	// then are the later stages of a map that has some.
	then []*Task
}

// FindTask finds file.py:function, module:function, file.R:function or, without a name,
// the command of how, and then those of a map's later stages. How also has the Python of
// functions, and what else of a task in a worker's file need not be the default.
func FindTask(name string, how config.Task, then ...string) (*Task, error) {
	t, err := find(name, how)
	if err != nil {
		return nil, err
	}
	for _, name := range then {
		stage, err := find(name, how)
		if err != nil {
			return nil, err
		}
		t.then = append(t.then, stage)
	}
	all := t.stages()
	editions := []string{t.Edition}
	for i, one := range all[1:] {
		editions = append(editions, one.Edition)
		if slices.ContainsFunc(all[:i+1], func(other *Task) bool { return other.Name == one.Name && other.code.Target != one.code.Target }) {
			one.Name += "-" + strconv.Itoa(i+2) // of another folder
		}
	}
	t.Edition = strings.Join(editions, "-")
	return t, nil
}

// stages are the task and those after it.
func (t *Task) stages() []*Task { return append([]*Task{t}, t.then...) }

func find(name string, how config.Task) (*Task, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, unavailable("%w", err)
	}
	t := &Task{dir: dir, config: how}
	t.config.Dir = dir
	if strings.ContainsRune(how.Interpreter, filepath.Separator) {
		t.config.Interpreter, _ = filepath.Abs(how.Interpreter)
	}
	if len(how.Command) > 0 {
		t.command()
	} else if err := t.function(name); err != nil {
		return nil, err
	}
	t.Edition, t.wanted = t.code.Named(), t.code.Edition()
	return t, nil
}

func (t *Task) command() {
	command := t.config.Command
	t.Name = filepath.Base(command[0])
	t.config.Interpreter, t.config.Fresh = "", ""
	t.scope = strings.Join(append([]string{t.dir}, command...), "\x00")
	if t.config.Output == "text" {
		t.scope += "\x00\x00text" // what it prints is another result
	}
	t.code = launch.Code{Dir: t.dir, Command: command}
}

func (t *Task) function(name string) error {
	at := strings.LastIndex(name, ":")
	if at < 1 || at == len(name)-1 {
		return mistake("TASK %q: write it as file.py:function, module:function or file.R:function, or give a command", name)
	}
	target := name[:at]
	t.Name, t.scope = name, t.dir
	isR := strings.HasSuffix(target, ".R")
	if isR {
		t.config.R, t.config.Interpreter, t.config.Fresh = name, "", ""
	} else {
		t.config.Python = name
	}
	if isR || strings.HasSuffix(target, ".py") {
		file := target
		if !filepath.IsAbs(file) {
			file = filepath.Join(t.dir, file)
		}
		if _, err := os.Stat(file); err != nil {
			return mistake("TASK %s: there is no file %s", name, target)
		}
		t.Name = filepath.Base(target) + name[at:]
		t.scope = filepath.Dir(file)
	}
	t.code = launch.Code{Dir: t.dir, Target: name}
	return nil
}

// Files are the paths of the files that the task is made of.
func (t *Task) Files() (files []string) {
	for _, stage := range t.stages() {
		files = append(files, stage.code.Files()...)
	}
	return files
}

func (t *Task) tasks() map[string]config.Task {
	tasks := map[string]config.Task{}
	for _, one := range t.stages() {
		tasks[one.Name] = one.config
	}
	return tasks
}

func (t *Task) put(m *starter.Map) {
	m.Scope, m.Edition = t.scope, t.Edition
	wanted := func(task *Task) string { return task.wanted }
	if m.Input.Edition == gpumux.AnyEdition {
		m.Edition, wanted = gpumux.AnyEdition, func(*Task) string { return gpumux.AnyEdition }
	}
	m.Input.Edition = ""
	if t.then == nil {
		m.Input.Task, m.Input.Edition = t.Name, wanted(t)
	}
	m.Input.Stages = slices.Clone(m.Input.Stages)
	for i := range m.Input.Stages {
		stage := t.stages()[i]
		m.Input.Stages[i].Task, m.Input.Stages[i].Edition = stage.Name, wanted(stage)
		if i > 0 {
			m.Scope += "\x00" + stage.scope
		}
	}
}

const probing = 2 * time.Minute

// pythonVersion matches a Python's answer, perhaps behind words of a script.
var pythonVersion = regexp.MustCompile(`(?m)^\d+\.\d+\.\d+ .*$`)

// CheckPython starts an interpreter. Fix says what to do where tasks cannot run in it,
// else it is empty; found is its version and path, or its other output.
func CheckPython(ctx context.Context, python string) (found, fix string) {
	ctx, cancel := context.WithTimeout(ctx, probing)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, "-c",
		"import sys; print('%d.%d.%d' % sys.version_info[:3], sys.executable); sys.exit(sys.version_info < (3, 9))").CombinedOutput()
	version := pythonVersion.Find(out)
	found = cmp.Or(string(version), string(out))
	var exit *exec.ExitError
	switch {
	case version != nil && err != nil:
		fix = "gpumux needs Python 3.9 or newer; give another Python"
	case version != nil:
	case err == nil, errors.As(err, &exit) && len(out) > 0:
		fix = "this is not how Python 3.9 or newer answers; give another Python"
	default:
		found, fix = err.Error(), "install Python 3.9 or newer, or give another Python; commands need none"
	}
	return text.Excerpt([]byte(strings.Join(strings.Fields(found), " "))), fix
}

func startable(ctx context.Context, tasks map[string]config.Task) error {
	tried := map[string]bool{"": true}
	for _, task := range tasks {
		python := task.Interpreter
		if tried[python] {
			continue
		}
		tried[python] = true
		if found, fix := CheckPython(ctx, python); fix != "" {
			return mistake("Python %s: %s; %s", python, cmp.Or(found, "it said nothing when asked for its version"), fix)
		}
	}
	return nil
}

// harmless are variables of the user's shell that tasks on the user's own machine see
// without being asked for. None is a credential, and none chooses a device.
var harmless = strings.Fields(`
HF_HOME HF_HUB_CACHE HF_ASSETS_CACHE HF_XET_CACHE HF_DATASETS_CACHE HUGGINGFACE_HUB_CACHE TRANSFORMERS_CACHE SENTENCE_TRANSFORMERS_HOME
TORCH_HOME TORCH_EXTENSIONS_DIR TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR CUDA_CACHE_PATH CUPY_CACHE_DIR NUMBA_CACHE_DIR KERAS_HOME
TFHUB_CACHE_DIR JAX_COMPILATION_CACHE_DIR VLLM_CACHE_ROOT NLTK_DATA PYTHONPATH R_LIBS R_LIBS_SITE PERL5LIB
JAVA_HOME NODE_PATH JULIA_DEPOT_PATH JULIA_PROJECT CONDA_PREFIX CONDA_DEFAULT_ENV VIRTUAL_ENV BLASTDB

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
