package config

import (
	"fmt"
	"strconv"
	"strings"
)

// OtherKeys is the quota of each fairness key that is not named.
const OtherKeys = "*"

// Quota is the most that the maps and leases of one fairness key get of a pool on this
// worker: slots at a time, and items that begin in a second. Zero bounds nothing.
type Quota struct {
	Slots int  `yaml:"slots"`
	Rate  Rate `yaml:"rate"`
}

// Rate is a number of items per second; in the file "10/s".
type Rate float64

// UnmarshalText reads a number of items per second, at most a million.
func (r *Rate) UnmarshalText(text []byte) error {
	number, whole := strings.CutSuffix(string(text), "/s")
	items, err := strconv.ParseFloat(number, 64)
	if err != nil || !whole || !(items > 0 && items <= 1e6) {
		return fmt.Errorf("%q is not a rate; write items per second, such as 10/s or 0.5/s", text)
	}
	*r = Rate(items)
	return nil
}

// checkQuotas reports quotas that bound nothing, or less than nothing.
func (p Pool) checkQuotas(at string, r *report) {
	for key, quota := range p.Quotas {
		if quota.Slots < 0 || quota == (Quota{}) {
			r.add(entryPath(at+".quotas", key), "bounds nothing; give slots or rate, such as {slots: 2, rate: 10/s}")
		}
	}
}
