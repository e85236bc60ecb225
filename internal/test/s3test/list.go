package s3test

import (
	"encoding/xml"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// list answers with a page of keys and folders.
func (s *Server) list(w http.ResponseWriter, prefix, delimiter, maxKeys, after string) {
	type entry struct {
		Key          string
		Size         int
		LastModified string
	}
	type folder struct{ Prefix string }
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Contents              []entry
		CommonPrefixes        []folder
		NextContinuationToken string `xml:",omitempty"`
		IsTruncated           bool
	}
	limit, _ := strconv.Atoi(maxKeys)
	last := ""
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		name, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if below, _, inside := strings.Cut(name, delimiter); delimiter != "" && inside {
			key = prefix + below + delimiter
		}
		if key <= after || key == last {
			continue
		}
		if len(out.Contents)+len(out.CommonPrefixes) == min(limit, 1000) {
			out.IsTruncated, out.NextContinuationToken = true, last
			break
		}
		if strings.HasSuffix(key, "/") {
			out.CommonPrefixes = append(out.CommonPrefixes, folder{key})
		} else {
			o := s.objects[key]
			out.Contents = append(out.Contents, entry{key, len(o.data), o.time.UTC().Format(time.RFC3339)})
		}
		last = key
	}
	xml.NewEncoder(w).Encode(out)
}
