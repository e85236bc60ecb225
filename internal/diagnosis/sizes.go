package diagnosis

import (
	"strings"

	"github.com/gpumux/gpumux"
)

// amount is a number of bytes as frameworks write it: "2.00 GiB", "1,234 bytes", "7.5
// Gb".
const amount = `([\d,]+(?:\.\d+)?\s?(?:[KMGT]i?[Bb]?\b|B\b|bytes\b)?)`

var (
	requestedWords = patterns(
		`allocate request for [^(\n]*\((\d+)B\)`,      // XLA, exact in parentheses
		`[Tt]ried to allocate `+amount,                // PyTorch, DefaultCPUAllocator
		`(?m)^Requested +: `+amount,                   // PyTorch with cudaMallocAsync
		`(?:trying|attempting) to allocate `+amount,   // XLA, CUDA.jl
		`[Oo]ut of memory allocating `+amount,         // CuPy, XLA
		`requested buffer of size `+amount,            // ONNX Runtime
		`smaller than requested bytes of `+amount,     // ONNX Runtime's capped arena
		`allocate \w+ buffer of size `+amount,         // ggml
		`Device memory allocation of size `+amount,    // ggml on Vulkan
		`allocating `+amount+` on device`,             // ggml on CUDA
		`(?:[Ff]ailed|[Uu]nable) to allocate `+amount, // RMM, NumPy
		`cannot allocate vector of size `+amount,      // R
		`memory allocation of `+amount+` failed`,      // Rust
		`cannot allocate `+amount+`-byte block`,       // Go
		`(?:m|re)alloc of size `+amount+` failed`,     // Arrow
		amount+` KV cache is needed`,                  // vLLM
		`[Uu]sed `+amount+` of [\d.]+[KMGT] hbm`,      // XLA's compiler
	)
	totalWords = patterns(
		`total capac\w+ of `+amount,                                 // PyTorch 2
		`(?m)^Device limit +: `+amount,                              // PyTorch with cudaMallocAsync
		amount+` total capacity`,                                    // PyTorch 1
		`memory usage: [\d.]+% \([^/)]*/`+amount+`\)`,               // CUDA.jl
		`[Uu]sed [\d.]+[KMGT] of `+amount+` hbm`,                    // XLA's compiler
		`Free memory on device[^(\n]*\([\d.]+/([\d.]+ [KMGT]i?B)\)`, // vLLM
	)
	freeWords = patterns(
		amount+` (?:is )?free\b`,              // PyTorch
		`Free \(according to CUDA\): `+amount, // PyTorch with cudaMallocAsync
		`Available memory of `+amount,         // ONNX Runtime
		`available KV cache memory \(`+amount, // vLLM
	)
	allowedWords = patterns(
		amount+` allowed;`,      // PyTorch with a fraction
		`(?m)^ +: `+amount,      // PyTorch with cudaMallocAsync and a fraction
		`max allowed: `+amount,  // PyTorch on MPS
		`limit set to: `+amount, // CuPy
	)
	usedOfTotal = exact(`memory usage: [\d.]+% \(` + amount + `/` + amount + `\)`)
)

func patterns(list ...string) (out []pattern) {
	for _, text := range list {
		out = append(out, exact(text))
	}
	return out
}

// readSizes reads the sizes in the framework's message. Budget is its own cap.
func readSizes(f *gpumux.Fault, text string) {
	f.Requested, f.Total = firstSize(requestedWords, text), firstSize(totalWords, text)
	f.Free, f.Budget = firstSize(freeWords, text), firstSize(allowedWords, text)
	if m := usedOfTotal().FindStringSubmatch(text); m != nil {
		f.Free = max(0, bytesOf(m[2])-bytesOf(m[1]))
	}
}

func firstSize(words []pattern, text string) int64 {
	for _, w := range words {
		if m := w().FindStringSubmatch(text); m != nil {
			return bytesOf(m[1])
		}
	}
	return 0
}

// bytesOf reads an amount; 0 when it is none. A bare unit such as R's "Gb" is binary.
func bytesOf(text string) int64 {
	text = strings.TrimSuffix(strings.TrimSpace(strings.ReplaceAll(text, ",", "")), "bytes")
	n, _ := gpumux.ParseSize(strings.TrimSpace(strings.TrimSuffix(text, "b")))
	return int64(n)
}

// excerpt is the part of a tail around an offset: three lines before, six after.
func excerpt(text string, at int) string {
	start := at
	for range 3 {
		start = max(0, strings.LastIndexByte(text[:start], '\n'))
	}
	lines := strings.SplitAfterN(text[at:], "\n", 7)
	return text[start:at] + strings.Join(lines[:min(len(lines), 6)], "")
}
