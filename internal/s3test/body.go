package s3test

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// body reads a request's body, which may be in chunks that carry a checksum at the end.
func body(r *http.Request) ([]byte, error) {
	if !strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") {
		return io.ReadAll(r.Body)
	}
	in := bufio.NewReader(r.Body)
	var whole []byte
	for {
		size, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		hex, _, _ := strings.Cut(strings.TrimSpace(size), ";")
		n, err := strconv.ParseInt(hex, 16, 64)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			_, err := io.Copy(io.Discard, in)
			return whole, err
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		whole = append(whole, chunk[:n]...)
	}
}
