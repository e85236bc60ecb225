//go:build !linux

package slot

const taskExposure, templateExposure = 0, 0

func expose(int, int) error { return nil }
