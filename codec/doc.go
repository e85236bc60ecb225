// Package codec encrypts what gpumux gives to Temporal and to the store.
//
// It owns the key files, the encryption of payloads (AES-256-GCM under a key that the
// payload names), and the HTTP server through which the Web UI and `temporal` read
// payloads. It never writes a key or logs a payload; package store encrypts objects with
// keys that are derived here. Keys never change once they are read, and nothing runs
// between calls.
//
// A Go service whose workflows map over gpumux workers uses the same keys like this:
//
//	keys, err := codec.Load("/etc/gpumux/keys")
//	…
//	options := client.Options{…}
//	codec.Apply(&options, keys)
//	c, err := client.Dial(options)
package codec
