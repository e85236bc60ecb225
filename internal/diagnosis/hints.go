package diagnosis

import (
	"fmt"
	"syscall"

	"github.com/gpumux/gpumux"
)

func hint(e Evidence, d Diagnosis) string {
	f := &d.Fault
	switch f.Kind {
	case gpumux.FaultDeviceOOM:
		return deviceMemoryHint(f, smaller(e))
	case gpumux.FaultBudget:
		return fmt.Sprintf("give the pool memory: %s or more (it was ended on its way up), or use %s, or add a larger pool to the ladder", roomFor(max(f.Peak, f.Budget)/8*9), smaller(e))
	case gpumux.FaultHostOOM:
		if e.HostLeft > 0 {
			return "make the item smaller, run fewer slots on this host, or give the pool memory: so that each slot has a budget that fits; the worker keeps the rest of the host alive"
		}
		return "the host's memory is the limit: raise the worker's (memory.max of its cgroup), run fewer slots on this host, or make the item smaller"
	case gpumux.FaultTimeout:
		if e.Loading {
			return "see in the tail and the traceback what the start waits for, such as a download; where it needs longer, raise start: of the" +
				" task in the worker's file, or --start-timeout with --local (a task's timeout is for items)"
		}
		return "raise the task's timeout, or find out from the traceback or the tail what the item waits for"
	case gpumux.FaultDeviceLost:
		return hintDevice
	case gpumux.FaultBadInput:
		if e.Foreign != "" {
			return foreignHint(e)
		}
		return "the task could not be loaded; mend that, then start the map again"
	case gpumux.FaultCrash:
		return deathHint(e)
	}
	return ""
}

func foreignHint(e Evidence) string {
	if e.Device == "CPU" {
		return "a slot on the CPU hides all GPUs: take CUDA_VISIBLE_DEVICES out of the task's code and of what it starts, or use a pool of GPUs"
	}
	return "take CUDA_VISIBLE_DEVICES out of the task's code and of what it starts, so that the slot's device is device 0; a program that" +
		" draws (EGL, Vulkan) has to be told the device; for several GPUs use a pool with gpus_per_slot"
}

func smaller(e Evidence) string {
	if e.Loading {
		return "a smaller model"
	}
	if e.Batch > 0 {
		return "a smaller micro-batch (@gpumux.batch)"
	}
	if e.Concurrent > 1 {
		return "fewer items at the same time (@gpumux.concurrent)"
	}
	return "smaller items"
}

// deviceMemoryHint leaves the sizes to the fault, which shows them itself.
func deviceMemoryHint(f *gpumux.Fault, smaller string) string {
	need := roomFor(f.Budget + f.Requested)
	switch {
	case f.Total > 0 && f.Requested > f.Total:
		return fmt.Sprintf("the device has %s in all, so use %s or a pool of larger devices", gpumux.Size(f.Total), smaller)
	case f.Budget > 0 && f.Total > 0 && int64(need) > f.Total:
		return fmt.Sprintf("use %s, or give the slot the whole device (slots: 1), or add a larger pool to the ladder", smaller)
	case f.Budget > 0 && f.Requested > 0:
		return fmt.Sprintf("give the pool memory: %s, or use %s, or add a larger pool to the ladder", need, smaller)
	case f.Requested > 0 && f.Free >= f.Requested:
		return "that much is free but not in one piece; set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF in older releases) in the task's env, or use " + smaller
	}
	return "give the pool more memory or fewer slots, or use " + smaller + ", or add a larger pool to the ladder"
}

// roomFor rounds up to whole GiB, or to steps of 256 MiB below 4 GiB.
func roomFor(bytes int64) gpumux.Size {
	step := int64(1 << 30)
	if bytes < 4<<30 {
		step = 256 << 20
	}
	return gpumux.Size((bytes + step - 1) / step * step)
}

func deathHint(e Evidence) string {
	sig, _ := deadlySignal(e)
	switch {
	case e.Protocol == ClosedWire, e.Exited && sig == 0 && e.Silent == "" && e.ExitCode == WireLost:
		return "keep the task from closing or replacing descriptors that it has not opened (os.closerange, os.dup2); libraries that" +
			" make a daemon of the process do it: start those as a program of their own"
	case !e.Exited:
		return "the process is replaced; only the runtime may write to the descriptor of the protocol"
	case sig == syscall.SIGKILL:
		return "killed from outside, and no memory kill of this slot was counted: look in the kernel's log (dmesg) for the host's" +
			" own out-of-memory killer, and for an operator or a scheduler"
	case sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGHUP:
		return "ended from outside; look for an operator, a scheduler or the task's own code that sends signals"
	case sig == syscall.SIGBUS:
		return "a mapped file or /dev/shm ran out of space, or native code is at fault; check `df /dev/shm`"
	case sig == syscall.SIGXCPU || sig == syscall.SIGXFSZ:
		return "a resource limit (ulimit) ended it; raise the worker's limit"
	case sig != 0:
		return "native code of the task or a library is at fault; the tail says where; run the item alone to see it again"
	case e.Silent != "":
		return "it must be a Python of version 3.9 or newer (a program that speaks the wire, for a task with program:); see what it" +
			" says to `" + e.Silent + " --version`, and give another Python, as interpreter or venv in the worker's file"
	case e.Loading:
		return "take the call that ends the process out of the module, or put it under if __name__ == \"__main__\""
	case e.ExitCode == 0:
		return "the task ends its own process (os._exit?); return a value or raise instead"
	}
	return "something in the task ends the process (os._exit, a C library's exit); the tail shows its last words"
}
