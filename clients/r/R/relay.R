# Gives the session what an item or a call printed and signalled in its slot.

# The worker cuts longer text in the middle, behind so many bytes.
HEAD <- 4096

# Print text, and signal the conditions again where they came. Warnings name item i, if there is one.
relay <- function(text, outcome, i = NULL) {
  if (length(text) == 0L && length(outcome$said) == 0L) return(invisible())
  bytes <- charToRaw(enc2utf8(paste(text, collapse = "")))
  done <- 0
  place <- function(offset) if (offset <= HEAD) offset else max(HEAD, length(bytes) - (outcome$size - offset))
  print_to <- function(end) {
    if (end > done) {
      part <- rawToChar(bytes[seq.int(done + 1, end)])
      Encoding(part) <- "UTF-8"
      cat(part)
    }
  }
  for (one in outcome$said) {
    print_to(place(one$from))
    done <- place(one$to)
    warns <- "warning" %in% one$class
    text <- paste0(if (warns && !is.null(i)) sprintf("item %d: ", i), one$message)
    condition <- structure(class = one$class, list(message = text, call = NULL, item = i))
    if (warns) warning(condition) else message(condition)
  }
  print_to(length(bytes))
}
