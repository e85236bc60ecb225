package workers

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
)

// noticeEvery is how often the host is asked whether it ends soon.
const noticeEvery = 5 * time.Second

// Evicted delivers what the host said when it gave notice that it ends soon. Stop the
// worker then.
func (w *Worker) Evicted() <-chan string { return w.evicted }

// awaitEviction asks for the notice until it is there or ctx ends. A host that does not
// answer has given none.
func (w *Worker) awaitEviction(ctx context.Context, every time.Duration) {
	warned := false
	for w.config.Notice.File != "" || w.config.Notice.URL != "" {
		said, err := w.askNotice(ctx)
		if said != "" {
			w.evicted <- said
			return
		}
		if err != nil && ctx.Err() == nil && !warned {
			warned = true
			w.log.Warn("the host cannot be asked whether it ends soon; it is asked again", zap.Error(err))
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return
		}
	}
}

// askNotice returns the host's notice if it ends soon.
func (w *Worker) askNotice(ctx context.Context) (said string, err error) {
	n, path, headers := w.config.Notice, w.config.NoticeFile(), map[string]string{}
	if path != "" {
		if _, err := os.Stat(path); err == nil {
			said = path + " is there"
		}
		return said, nil
	}
	if n.Token != "" {
		_, token, err := fetch(ctx, http.MethodPut, n.Token, map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": "60"})
		if err != nil {
			return "", err
		}
		headers["X-aws-ec2-metadata-token"] = token
	}
	maps.Copy(headers, n.Headers)
	status, body, err := fetch(ctx, http.MethodGet, n.URL, headers)
	if err != nil || status != http.StatusOK || body == "" || strings.EqualFold(body, "FALSE") {
		return "", err
	}
	return fmt.Sprintf("%s answers %.200q", n.URL, body), nil
}

// metadata asks without a proxy: a host's metadata is on the host's own link.
var metadata = &http.Client{Transport: &http.Transport{}, Timeout: 3 * time.Second}

func fetch(ctx context.Context, method, url string, headers map[string]string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, "", err
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	answer, err := metadata.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	return answer.StatusCode, strings.TrimSpace(string(text)), err
}
