# The wire: frames from and to the worker, protocol version 1. See docs/wire.md.
#
# R cannot use a socket that it inherits, so there are two pipes: one to read on descriptor 3, one to write on descriptor 4.

VERSION <- 1L
MAX_FRAME <- 2^30

wire <- new.env()
wire$ahead <- list()

condition <- function(class, ...) structure(list(message = paste0(...), call = NULL), class = c(class, "error", "condition"))

# The other side breaks the protocol.
broken <- function(...) stop(condition("gpumux_wire", ...))
# It wants no more, or is gone.
ended <- function() stop(condition("gpumux_end", "the worker is gone"))

connect <- function() {
  if (!all(file.exists(c("/dev/fd/3", "/dev/fd/4")))) broken("descriptors 3 and 4 are not open; a gpumux worker starts this program")
  wire$from <- file("/dev/fd/3", "rb", raw = TRUE)
  wire$to <- file("/dev/fd/4", "wb", raw = TRUE)
  try(get("closeFD", envir = asNamespace("parallel"))(3:4), silent = TRUE)
  wire$printed <- output()
}

# The next message: its header, with what follows it as `body`; NULL at the end of the stream.
receive <- function() {
  prefix <- readBin(wire$from, "raw", 4L)
  if (length(prefix) == 0L) return(NULL)
  size <- sum(as.numeric(prefix) * 256^(3:0))
  if (length(prefix) < 4L || size > MAX_FRAME) broken("the worker announces a frame of ", size, " bytes")
  frame <- readBin(wire$from, "raw", size)
  if (length(frame) < size) broken("the stream ended ", size - length(frame), " bytes before the end of a frame")
  end <- match(as.raw(10L), frame)
  if (is.na(end)) broken("a frame of ", size, " bytes has no header line")
  line <- rawToChar(frame[seq_len(end - 1L)])
  header <- tryCatch(jsonlite::parse_json(line, simplifyVector = TRUE), error = function(e) broken("a header is not JSON: ", line))
  if (!is.list(header) || is.null(header$type)) broken("a header is not a JSON object with a type: ", line)
  header$body <- frame[-seq_len(end)]
  header
}

# The oldest message that was not handled yet.
following <- function() {
  if (length(wire$ahead) == 0L) return(receive())
  message <- wire$ahead[[1L]]
  wire$ahead <- wire$ahead[-1L]
  message
}

# Wait until the worker allows another item: after a fault it may end this process instead.
await_next <- function() {
  repeat {
    message <- receive()
    if (is.null(message) || message$type == "stop") ended()
    if (message$type == "next") return(invisible())
    wire$ahead <- c(wire$ahead, list(message))
  }
}

# Send a message: the fields of its header as JSON, without those that are NULL, and its body.
send <- function(type, ..., body = raw()) {
  fields <- c(type = quoted(type), unlist(list(...)))
  head <- charToRaw(paste0("{", paste0('"', names(fields), '":', fields, collapse = ","), "}\n"))
  size <- length(head) + length(body)
  tryCatch({
    writeBin(c(as.raw(size %/% 256^(3:0) %% 256), head, body), wire$to)
    flush(wire$to)
  }, error = function(e) ended())
  invisible()
}

# The size of the file that the process prints to; 0 where that is no file.
output <- function() {
  flush(stdout())
  size <- file.size("/dev/fd/1")
  if (is.na(size)) 0 else size
}

# That size where it has changed since the last answer, else NULL.
grown <- function() {
  size <- output()
  if (size == wire$printed) return(NULL)
  wire$printed <- size
  whole(size)
}

whole <- function(number) sprintf("%.0f", number)
seconds <- function(number) sprintf("%.6f", max(0, number))
