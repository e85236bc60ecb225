//go:build !linux

package slot

type shell struct{}

func (*Sweeper) start() error { return nil }

func (*shell) end() {}
