package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/health"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/internal/store"
)

func checkResult(check string, err error, fix, detail string) finding {
	if err != nil {
		return finding{Check: check, Status: checkBad, Detail: err.Error(), Fix: fix}
	}
	return finding{Check: check, Status: checkGood, Detail: detail}
}

func checkPython(ctx context.Context, python string) finding {
	detail, fix := local.CheckPython(ctx, python)
	f := finding{Check: "python", Status: checkGood, Detail: detail, Fix: fix}
	if fix != "" {
		f.Status = checkBad
	}
	return f
}

func checkDevices(ctx context.Context, python string) []finding {
	inventory, err := gpu.Open(ctx, gpu.Options{})
	if err != nil {
		return []finding{{Check: "devices", Status: checkBad, Detail: err.Error(), Fix: "repair the driver, or use the pool cpu"}}
	}
	defer inventory.Close()
	findings := probeGPUs(ctx, inventory, inventory.Devices(), python)
	if why := inventory.Unusable(); why != "" {
		return append(findings, finding{Check: "gpu", Status: checkBad, Detail: report.OneLine(why, 400),
			Fix: "repair it, or use the CPU: --devices cpu, in a worker's file devices: cpu"})
	}
	if reason := inventory.Reason(); reason != "" {
		findings = append(findings, finding{Check: "gpu", Status: checkNote, Detail: report.OneLine(reason, 300)})
	}
	return findings
}

func freeText(m gpu.Memory) string {
	if m.Total == 0 {
		return "its memory is unknown"
	}
	return fmt.Sprintf("%s free of %s", gpumux.Size(m.Free), gpumux.Size(m.Total))
}

// probeGPUs tries each GPU with a throw-away process, all at once.
func probeGPUs(ctx context.Context, inventory *gpu.Inventory, list []gpu.Device, python string) []finding {
	list = slices.DeleteFunc(slices.Clone(list), func(d gpu.Device) bool { return d.Kind == gpu.KindCPU || !d.Usable() })
	findings := make([]finding, len(list))
	var all sync.WaitGroup
	for i, d := range list {
		all.Go(func() {
			status, err := inventory.Status(d.UUID)
			f := checkResult("device "+d.Selector(), err, "look at it with nvidia-smi; leave it out of devices until it works", d.Name+", "+freeText(status.Memory))
			if err == nil {
				probe := health.Prober{Python: python}.Try(ctx, d.UUID)
				f.Detail += "; " + probe.String()
				switch {
				case probe.Sick():
					f.Status, f.Fix = checkBad, probe.Hint()
				case probe.Untried != "":
					f.Status = checkNote
				case probe.Blind:
					f.Status = checkNote
					f.Fix = "frameworks' limits alone keep budgets there; in a container use --pid=host (hostPID: true), or driver 565.57 or newer"
				}
			}
			findings[i] = f
		})
	}
	all.Wait()
	return findings
}

func checkStore(ctx context.Context, url string) finding {
	return checkResult("store", tryStore(ctx, url), "check the URL, the credentials and the permissions; see docs/store.md", url+" can be written")
}

func tryStore(ctx context.Context, url string) error {
	st, err := store.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer st.Close()
	key := fmt.Sprintf("doctor/%d-%d", os.Getpid(), time.Now().UnixNano())
	if err := st.Objects.Put(ctx, key, []byte("gpumux doctor\n"), objects.Creation{}); err != nil {
		return err
	}
	return st.Objects.Delete(ctx, key)
}
