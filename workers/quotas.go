package workers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gpumux/gpumux/activities"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workers/config"
)

// quotas counts what each fairness key has of a pool on this worker.
type quotas struct {
	pool, host string
	limits     map[string]config.Quota

	mu   sync.Mutex // guards what follows
	keys map[string]*usage
}

// usage is the quota of a key and what it has of it.
type usage struct {
	contract.QuotaInfo
	limiter *rate.Limiter
	waited  time.Time // when work last had to wait
}

// recent is how long after a wait a key counts as waiting: chunks that went back come
// again within it.
const recent = 3 * time.Second

func (u *usage) waits() bool { return time.Since(u.waited) < recent }

// Admit implements activities.Admit.
func (q *quotas) Admit(key string) (await func(context.Context) error, leave func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// With "*" each map may bring a key of its own.
	maps.DeleteFunc(q.keys, func(_ string, u *usage) bool {
		return u.Busy == 0 && !u.waits() && u.limiter.Tokens() >= float64(u.limiter.Burst())
	})
	u := q.keys[key]
	if u == nil {
		u = q.usageOf(key)
		q.keys[key] = u
	}
	if u.Slots > 0 && u.Busy >= u.Slots {
		u.waited = time.Now()
		return nil, nil, activities.OverQuota(fmt.Sprintf("the quota of %s: %d slot%s of pool %s at %s", key, u.Slots, "s"[:min(1, u.Slots-1)], q.pool, q.host))
	}
	u.Busy++
	leave = func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		u.Busy--
	}
	return func(ctx context.Context) error { return q.await(ctx, u) }, leave, nil
}

func (q *quotas) usageOf(key string) *usage {
	quota, named := q.limits[key]
	if !named {
		quota = q.limits[config.OtherKeys]
	}
	u := &usage{QuotaInfo: contract.QuotaInfo{Key: key, Slots: quota.Slots, Rate: float64(quota.Rate)}, limiter: rate.NewLimiter(rate.Inf, 0)}
	if quota.Rate > 0 {
		// A burst of a tenth of a second keeps high rates, which a timer alone would miss.
		u.limiter = rate.NewLimiter(rate.Limit(quota.Rate), max(1, int(quota.Rate/10)))
	}
	return u
}

// await waits for the key's rate. The error is ctx's cause.
func (q *quotas) await(ctx context.Context, u *usage) error {
	if u.limiter.Allow() {
		return nil
	}
	q.mu.Lock()
	u.waited = time.Now()
	q.mu.Unlock()
	if u.limiter.Wait(ctx) != nil {
		<-ctx.Done() // the limiter also gives up where a deadline is too near
		return context.Cause(ctx)
	}
	return nil
}

// describe lists the quotas of the file and those of other keys that are in use.
func (q *quotas) describe() (all []contract.QuotaInfo) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key := range q.limits {
		if q.keys[key] == nil {
			all = append(all, q.usageOf(key).QuotaInfo)
		}
	}
	for _, u := range q.keys {
		if u.Slots > 0 || u.Rate > 0 {
			info := u.QuotaInfo
			info.Waits = u.waits()
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b contract.QuotaInfo) int { return strings.Compare(a.Key, b.Key) })
	return all
}
