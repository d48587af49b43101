#include <stdio.h>
#include <tigon/tigon.h>

int main(void) {
  tigon_context context = TIGON_CONTEXT_INIT;
  tigon_softmax_forward_args args = TIGON_SOFTMAX_FORWARD_INIT;
  if (tigon_softmax_forward(&context, &args) != TIGON_INVALID_ARGUMENT) return 1; /* no tensors given */
  return puts(tigon_last_error()) < 0;
}
