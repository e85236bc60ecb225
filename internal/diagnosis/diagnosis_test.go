package diagnosis

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/wire"
)

// diagnosisCase is one case of testdata/diagnosis.json, which the tests of the Python
// runtime read as well. Exit is null for a process that lives or that a signal ended.
type diagnosisCase struct {
	Name, Framework, Class, Message string
	Chain                           []wire.Cause
	Tail, Signal                    string
	Exit                            *int
	Code                            int
	OOMKills                        int
	MPS, Command, CoreDumped, CPU   bool
	Kind                            gpumux.FaultKind
	Poisoned, Device                bool
	MPSWide, Blameless              bool
	Requested, Total, Free, Budget  int64
}

func (c diagnosisCase) evidence() Evidence {
	e := Evidence{
		Class: c.Class, Message: c.Message, Chain: c.Chain, Tail: c.Tail, Code: c.Code,
		OOMKills: c.OOMKills, MPS: c.MPS, Command: c.Command, CoreDumped: c.CoreDumped, OnCPU: c.CPU,
		Signal: unix.SignalNum(c.Signal),
	}
	e.Exited = c.Exit != nil || e.Signal != 0
	if c.Exit != nil {
		e.ExitCode = *c.Exit
	}
	return e
}

func diagnosisCases(t testing.TB) []diagnosisCase {
	data, err := os.ReadFile("testdata/diagnosis.json")
	require.NoError(t, err)
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.DisallowUnknownFields()
	var cases []diagnosisCase
	require.NoError(t, dec.Decode(&cases))
	return cases
}

func TestDiagnose_Frameworks(t *testing.T) {
	cases := diagnosisCases(t)
	require.GreaterOrEqual(t, len(cases), 60)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			d := Diagnose(c.evidence())
			got := diagnosisCase{
				Kind: d.Fault.Kind, Poisoned: d.Poisoned, Device: d.Device, MPSWide: d.MPSWide, Blameless: d.Blameless,
				Requested: d.Fault.Requested, Total: d.Fault.Total, Free: d.Fault.Free, Budget: d.Fault.Budget,
			}
			want := diagnosisCase{
				Kind: c.Kind, Poisoned: c.Poisoned, Device: c.Device, MPSWide: c.MPSWide, Blameless: c.Blameless,
				Requested: c.Requested, Total: c.Total, Free: c.Free, Budget: c.Budget,
			}
			require.Equal(t, want, got, d.Fault.Error())
			require.NotEmpty(t, d.Fault.Message)
			require.NotContains(t, d.Fault.Message, "\n")
			require.Less(t, len(d.Fault.Message), maxMessage+10)
			if d.Fault.Kind != gpumux.FaultTaskError {
				require.NotEmpty(t, d.Fault.Hint)
			}
		})
	}
}

// A rule that no case needs is a rule that nobody has seen work: each must be the one
// that decides some case.
func TestDiagnose_EveryRuleDecides(t *testing.T) {
	decides := map[*rule]bool{}
	note := func(subjects []subject, e Evidence) {
		f, ok := match(subjects, e.Code, e.admits)
		if !ok {
			return
		}
		decides[f.rule] = true
		if f.rule.class == nil && f.subject.text != "" && e.Code == 0 {
			e.Tail = f.subject.text
			printed, ok := match(e.printed(), 0, e.admits)
			require.True(t, ok, "nothing found in a tail of %q", e.Tail)
			require.Same(t, f.rule, printed.rule, e.Tail)
		}
	}
	for _, c := range diagnosisCases(t) {
		note(c.evidence().exceptions(), c.evidence())
		note(c.evidence().printed(), c.evidence())
	}
	// What the file does not have: the same errors by number alone, and by the name that the
	// driver gives them.
	for i := range rules {
		for _, code := range rules[i].codes {
			f, ok := match([]subject{{class: "torch.AcceleratorError"}}, code, Evidence{}.admits)
			require.True(t, ok, "code %d", code)
			require.Contains(t, f.rule.codes, code)
			decides[f.rule] = true
		}
	}
	for text, stack := range map[string]string{
		"out of memory allocating: java.lang.OutOfMemoryError: Direct buffer memory": "Java",
		"ERROR: LoadError: OutOfMemoryError()":                                       "Julia",
		"OOM when allocating tensor with shape[2] and type float by allocator cpu":   "TensorFlow on the CPU",
		"OOM when allocating tensor with shape[2] and type float by allocator bfc":   "TensorFlow",
		"Out of memory allocating 1,024 bytes (allocated so far: 0 bytes)":           "CuPy",
		"Unable to allocate 7.45 GiB for an array with shape (9,) and type float64":  "NumPy",
		"Out of GPU memory trying to allocate 1.5 GiB":                               "CUDA.jl",
		"ERROR: Unexpected bus error. insufficient shared memory (shm)":              "shared memory",
	} {
		f, ok := match([]subject{{text: text}}, 0, Evidence{}.admits)
		require.True(t, ok, text)
		require.Equal(t, stack, f.rule.stack, text)
		decides[f.rule] = true
	}
	for i := range rules {
		require.True(t, decides[&rules[i]], "no case decides rule %d of %s: %v %v", i, rules[i].stack, rules[i].kind, rules[i].codes)
	}
}

// The driver, the runtime and the sentence of cudaGetErrorString say the same as the
// number.
func TestDiagnose_CUDANames(t *testing.T) {
	for code, texts := range map[int][]string{
		2:   {"CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation", "CUDA driver error: out of memory"},
		46:  {"CUDA_ERROR_DEVICE_UNAVAILABLE", "cudaErrorDevicesUnavailable", "all CUDA-capable devices are busy or unavailable", "CUDA-capable device(s) is/are busy or unavailable"},
		214: {"CUDA_ERROR_ECC_UNCORRECTABLE", "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
		700: {"CUDA_ERROR_ILLEGAL_ADDRESS", "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
		702: {"CUDA_ERROR_LAUNCH_TIMEOUT", "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
		710: {"CUDA_ERROR_ASSERT", "cudaErrorAssert", "device-side assert triggered"},
		716: {"CUDA_ERROR_MISALIGNED_ADDRESS", "cudaErrorMisalignedAddress", "misaligned address"},
		719: {"CUDA_ERROR_LAUNCH_FAILED", "cudaErrorLaunchFailure", "unspecified launch failure"},
		802: {"CUDA_ERROR_SYSTEM_NOT_READY", "cudaErrorSystemNotReady", "system not yet initialized"},
		805: {"CUDA_ERROR_MPS_CONNECTION_FAILED", "cudaErrorMpsConnectionFailed"},
		911: {"CUDA_ERROR_EXTERNAL_DEVICE", "cudaErrorExternalDevice"},
		999: {"CUDA_ERROR_UNKNOWN", "cudaErrorUnknown", "CUDA error: unknown error"},
	} {
		byCode, ok := match([]subject{{class: "torch.AcceleratorError"}}, code, Evidence{}.admits)
		require.True(t, ok, code)
		for _, text := range append(texts, fmt.Sprintf("[%d] Call to cuMemcpyDtoH results in UNKNOWN_CUDA_ERROR", code), fmt.Sprintf("CUDA error %d at kernel.cu:3", code)) {
			f, ok := match([]subject{{class: "RuntimeError", text: "x: " + text + "\ny"}}, 0, Evidence{}.admits)
			require.True(t, ok, text)
			require.Same(t, byCode.rule, f.rule, text)
			f, ok = match(Evidence{Tail: "a\nx: " + text + "\nb\n"}.printed(), 0, Evidence{}.admits)
			require.True(t, ok, text)
			require.Same(t, byCode.rule, f.rule, text)
			require.Equal(t, "x: "+text, f.diagnosis().Fault.Message)
		}
	}
}

func TestDiagnose_Messages(t *testing.T) {
	for _, c := range []struct {
		name, want string
		e          Evidence
	}{
		{"the framework's line", "CUDA error: device-side assert triggered",
			Evidence{Class: "RuntimeError", Message: "CUDA error: device-side assert triggered\nCompile with …"}},
		{"the line that matters", "(0) RESOURCE_EXHAUSTED: OOM when allocating tensor",
			Evidence{Class: "tf.ResourceExhaustedError", Message: "2 root error(s) found.\n  (0) RESOURCE_EXHAUSTED: OOM when allocating tensor"}},
		{"of the chain", "CUDA out of memory. Tried to allocate 2.00 GiB.",
			Evidence{Class: "ValueError", Message: "x", Chain: []wire.Cause{{Class: "torch.OutOfMemoryError", Message: "CUDA out of memory. Tried to allocate 2.00 GiB."}}}},
		{"the first line that says so", "CUDA error: out of memory",
			Evidence{Class: "torch.AcceleratorError", Code: 2, Message: "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs.nvidia.com"}},
		{"words and another number", "CUDA out of memory. (CUDA error 710)", Evidence{Class: "torch.OutOfMemoryError", Message: "CUDA out of memory.", Code: 710}},
		{"last of a tail", "CUDA error: an illegal memory access was encountered (2)",
			Evidence{Exited: true, ExitCode: 1, Tail: "CUDA error: an illegal memory access was encountered (1)\nx\nCUDA error: an illegal memory access was encountered (2)\n"}},
		{"class without words", "out of host memory (Python)", Evidence{Class: "MemoryError"}},
		{"code without words", "CUDA error 700", Evidence{Class: "torch.AcceleratorError", Code: 700}},
		{"exception without words", "KeyError", Evidence{Class: "KeyError"}},
		{"library and reason", "INTERNAL: unhandled cuda error: NCCL WARN Cuda failure 2 'out of memory'",
			Evidence{Class: "JaxRuntimeError", Message: "INTERNAL: unhandled cuda error", Tail: "x\nNCCL WARN Cuda failure 2 'out of memory'\n"}},
		{"signal", "the task process ended by signal SIGSEGV (core dumped): Fatal Python error: Segmentation fault in step (train.py:12)",
			Evidence{Exited: true, Signal: syscall.SIGSEGV, CoreDumped: true, Tail: "Fatal Python error: Segmentation fault\n\nThread 0x1:\n  File \"train.py\", line 12 in step\n"}},
		{"terminate", "the task process ended by signal SIGABRT: terminate called after throwing an instance of 'E' what(): no layer",
			Evidence{Exited: true, Signal: syscall.SIGABRT, Tail: "terminate called after throwing an instance of 'E'\n  what():  no layer\nAborted\n"}},
		{"exit", "the task process ended with exit status 3: bye", Evidence{Exited: true, ExitCode: 3, Tail: "hello\nbye\n"}},
		{"exit of a child", "the task process ended with exit status 139, a child's SIGSEGV", Evidence{Exited: true, ExitCode: 139}},
		{"exit 0", "the task process ended itself with exit status 0 in the middle of an item", Evidence{Exited: true}},
		{"exit of an import", "the import of train.py ended the process with exit status 3: bye", Evidence{Exited: true, ExitCode: 3, Loading: true, Target: "train.py:step", Tail: "bye\n"}},
		{"good exit of an import", "the import of the task's module ended the process with exit status 0", Evidence{Exited: true, Loading: true}},
		{"no Python", "/bin/ls ended with exit status 2 before it began to import the task: ls: no such file",
			Evidence{Exited: true, ExitCode: 2, Loading: true, Silent: "/bin/ls", Tail: "ls: no such file\n"}},
		{"command", "train: error: bad flag", Evidence{Exited: true, ExitCode: 2, Command: true, Tail: "usage\ntrain: error: bad flag\n"}},
		{"silent command", "the command ended with exit status 2 and said nothing", Evidence{Exited: true, ExitCode: 2, Command: true}},
		{"command's result", "standard output is not JSON", Evidence{Exited: true, Command: true, Protocol: "standard output is not JSON"}},
		{"protocol", "frame of 3 GiB", Evidence{Protocol: "frame of 3 GiB"}},
		{"limit", "no result after 5s", Evidence{TimedOut: true, Message: "no result after 5s"}},
		{"host_oom", "the host had 300MiB of memory left, and the task process and its children held 9GiB, the most of all",
			Evidence{HostLeft: 300 << 20, Peak: 9 << 30, Exited: true, Signal: syscall.SIGKILL}},
		{"bad_input", "the task process and its children held 512MiB on GPU 1 (GPU-b, H100), which is not the device of its slot, GPU-a",
			Evidence{Foreign: "1 (GPU-b, H100)", ForeignHeld: 512 << 20, Device: "GPU-a", Exited: true, Signal: syscall.SIGKILL}},
		{"budget", "the task process and its children held 9GiB, over the slot's budget of 8GiB", Evidence{OverBudget: true, Peak: 9 << 30, Budget: 8 << 30}},
		{"budget", "the task process and its children held 9GiB, over the budget of all slots of the device of 8GiB", Evidence{OverBudget: true, Lent: true, Peak: 9 << 30, Budget: 8 << 30}},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, Diagnose(c.e).Fault.Message) })
	}
	long := Diagnose(Evidence{Class: "ValueError", Message: strings.Repeat("ü", 5000)}).Fault.Message
	require.LessOrEqual(t, len(long), maxMessage+len("…"))
	require.True(t, strings.HasSuffix(long, "ü…"))
}

func TestDiagnose_WhatTheWorkerDid(t *testing.T) {
	lost := "Unable to determine the device handle: GPU is lost. Reboot the system\n"
	d := Diagnose(Evidence{Canceled: true, Exited: true, Signal: syscall.SIGKILL, Tail: lost})
	require.Equal(t, gpumux.FaultCanceled, d.Fault.Kind)
	require.True(t, d.Poisoned)

	d = Diagnose(Evidence{TimedOut: true, Tail: lost})
	require.Equal(t, gpumux.FaultTimeout, d.Fault.Kind)
	require.True(t, d.Poisoned && d.Device, "a hang may come from the device")
	require.False(t, Diagnose(Evidence{TimedOut: true}).Device)

	over := Evidence{OverBudget: true, Peak: 9 << 30, Budget: 8 << 30, Exited: true, Signal: syscall.SIGKILL, OOMKills: 1}
	d = Diagnose(over)
	require.Equal(t, gpumux.FaultBudget, d.Fault.Kind)
	require.True(t, d.Poisoned)
	require.Contains(t, d.Fault.Hint, "memory: 11GiB")
	over.Class, over.Message = "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB."
	d = Diagnose(over)
	require.Equal(t, gpumux.FaultDeviceOOM, d.Fault.Kind, "the framework says more than the watch")
	require.EqualValues(t, 9<<30, d.Fault.Peak)
	over.Class, over.Message = "ValueError", "x"
	require.Equal(t, gpumux.FaultBudget, Diagnose(over).Fault.Kind)

	d = Diagnose(Evidence{Class: "ModuleNotFoundError", Message: "No module named 'embd'", Loading: true})
	require.Equal(t, gpumux.FaultBadInput, d.Fault.Kind)
	d = Diagnose(Evidence{Exited: true, Loading: true})
	require.Contains(t, d.Fault.Message, "the task's module ended the process")
	require.Contains(t, d.Fault.Hint, "__main__")
	d = Diagnose(Evidence{Class: "torch.OutOfMemoryError", Message: "CUDA out of memory.", Loading: true})
	require.Equal(t, gpumux.FaultDeviceOOM, d.Fault.Kind, "a model that does not fit is no bad input")
}

func TestDiagnose_Hints(t *testing.T) {
	oom := func(message string, budget int64) string {
		return Diagnose(Evidence{Class: "torch.OutOfMemoryError", Message: message, Budget: budget}).Fault.Hint
	}
	full := "CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of 79.15 GiB of which %s is free."
	require.Contains(t, oom(fmt.Sprintf(full, "2.00 GiB", "10.00 GiB"), 8<<30), "give the pool memory: 10GiB")
	require.Contains(t, oom(fmt.Sprintf(full, "40.00 GiB", "10.00 GiB"), 60<<30), "slots: 1")
	require.Contains(t, oom(fmt.Sprintf(full, "90.00 GiB", "10.00 GiB"), 0), "the device has 79.1GiB in all")
	require.Contains(t, oom(fmt.Sprintf(full, "2.00 GiB", "10.00 GiB"), 0), "expandable_segments")
	require.NotContains(t, oom(fmt.Sprintf(full, "2.00 GiB", "10.00 GiB"), 8<<30), "expandable_segments", "the budget is the reason")
	require.Contains(t, oom("CUDA out of memory.", 0), "larger pool")

	killed := Diagnose(Evidence{Exited: true, Signal: syscall.SIGKILL}).Fault
	require.Contains(t, killed.Hint, "from outside")
	require.Equal(t, "signal SIGKILL", killed.Exit)
	require.Contains(t, Diagnose(Evidence{Exited: true}).Fault.Hint, "os._exit")
	old := Evidence{Exited: true, ExitCode: WireLost, Loading: true, Silent: "python3.8", Tail: "gpumux: python3.8 is Python 3.8.1; gpumux needs 3.9 or newer\n"}
	require.Contains(t, Diagnose(old).Fault.Hint, "version 3.9 or newer")
	require.Contains(t, Diagnose(Evidence{Exited: true, ExitCode: WireLost}).Fault.Hint, "os.closerange")
	require.Contains(t, Diagnose(Evidence{Class: "RuntimeError", Message: "Cannot re-initialize CUDA in forked subprocess. To use …"}).Fault.Hint, "spawn")
}

func FuzzDiagnose(f *testing.F) {
	for _, text := range []string{"", "\n", "CUDA out of memory. Tried to allocate 99999999999999999999 GiB", "OOM when allocating tensor with shape[9999999999,9999999999] and type double",
		"Traceback (most recent call last):\n", "[999] Call to cu", "\xff\xfe", "CUDA error 2"} {
		f.Add(text, text, 0, 9)
	}
	kinds := []gpumux.FaultKind{gpumux.FaultDeviceOOM, gpumux.FaultHostOOM, gpumux.FaultCrash, gpumux.FaultDeviceLost, gpumux.FaultTaskError}
	f.Fuzz(func(t *testing.T, message, tail string, code, signal int) {
		for _, e := range []Evidence{
			{Class: "RuntimeError", Message: message, Tail: tail, Code: code},
			{Exited: true, Signal: syscall.Signal(signal), ExitCode: code, Tail: tail},
		} {
			d := Diagnose(e)
			if !slices.Contains(kinds, d.Fault.Kind) || d.Fault.Message == "" || strings.Contains(d.Fault.Message, "\n") {
				t.Fatalf("%+v gives %+v", e, d)
			}
			if d.Fault.Requested < 0 || d.Fault.Free < 0 || d.Fault.Total < 0 {
				t.Fatalf("negative size: %+v", d.Fault)
			}
		}
	})
}

// Only a task that takes many items at once hears of micro-batches.
func TestDiagnose_HintsOfMicroBatches(t *testing.T) {
	for batch, smaller := range map[int]string{0: "smaller items", 8: "a smaller micro-batch (@gpumux.batch)"} {
		d := Diagnose(Evidence{Class: "torch.OutOfMemoryError", Message: "CUDA out of memory.", Batch: batch})
		require.Equal(t, gpumux.FaultDeviceOOM, d.Fault.Kind)
		require.Contains(t, d.Fault.Hint, "use "+smaller)
		require.Equal(t, batch > 0, strings.Contains(d.Fault.Hint, "micro-batch"))
	}
}

// As vLLM 0.32 said it on a CPU whose memory others had.
func TestDiagnose_HasTheWordsOfAnEngineOfItsOwn(t *testing.T) {
	d := Diagnose(Evidence{Class: "RuntimeError", Message: "Engine core initialization failed. See root cause above. Failed core proc(s): {}", Loading: true, OnCPU: true,
		Tail: "(VllmWorker-0 pid=8814) ERROR 11-29 10:23:26 [multiproc_executor.py:953]     raise ValueError(\n" +
			"(VllmWorker-0 pid=8814) ERROR 11-29 10:23:26 [multiproc_executor.py:953] ValueError: Available memory on node 0 (12.36/23.21 GiB) on startup is less than " +
			"desired CPU memory utilization (0.92, 21.36 GiB).\n" +
			"(EngineCore pid=8801) ERROR 11-29 10:23:27 [core.py:1510] Exception: WorkerProc initialization failed due to an exception in a background process.\n"})
	require.Equal(t, gpumux.FaultBadInput, d.Fault.Kind)
	require.Equal(t, "Engine core initialization failed. See root cause above. Failed core proc(s): {}: ValueError: Available memory on node 0 (12.36/23.21 GiB) on startup is less "+
		"than desired CPU memory utilization (0.92, 21.36 GiB).", d.Fault.Message)
}
