// Package nvidiacheck runs gpumux against NVIDIA's own libraries and MPS daemon, of
// several driver series, on a machine without a GPU: they load, answer and fail as on a
// host whose driver is missing.
//
// It owns fetch.sh, which gets them from Debian, and what they answer, kept as test data
// beside the packages that read it. It never installs anything. It stops with its tests.
package nvidiacheck
