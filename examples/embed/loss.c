/* From C: the loss of a linear layer and both gradients, without its logits. */
#include <stdio.h>
#include <stdlib.h>
#include <tigon/tigon.h>

enum { kTokens = 4, kHidden = 8, kClasses = 16 };

static tigon_tensor vector(void* data, int32_t dtype, int64_t size) {
  tigon_tensor t = {0};
  t.data = data;
  t.dtype = dtype;
  t.rank = 1;
  t.sizes[0] = size;
  t.strides[0] = 1;
  return t;
}

static tigon_tensor matrix(void* data, int64_t rows, int64_t columns) {
  tigon_tensor t = vector(data, TIGON_F32, rows);
  t.rank = 2;
  t.sizes[1] = columns;
  t.strides[0] = columns;
  t.strides[1] = 1;
  return t;
}

static int failed(int status) {
  if (status != TIGON_OK) fprintf(stderr, "%s\n", tigon_last_error());
  return status != TIGON_OK;
}

int main(void) {
  float x[kTokens * kHidden], weight[kClasses * kHidden] = {0}, loss = 0, dx[kTokens * kHidden],
                                                dweight[kClasses * kHidden];
  int32_t target[kTokens] = {1, 3, 5, -100}; /* the last one is ignored */
  for (int i = 0; i < kTokens * kHidden; ++i) x[i] = (float)(i % 5) - 2.0f;

  tigon_fused_linear_cross_entropy_args args = TIGON_FUSED_LINEAR_CROSS_ENTROPY_INIT;
  args.x = matrix(x, kTokens, kHidden);
  args.weight = matrix(weight, kClasses, kHidden);
  args.target = vector(target, TIGON_I32, kTokens);
  args.out.loss = vector(&loss, TIGON_F32, 1);
  args.dx = matrix(dx, kTokens, kHidden); /* leave a gradient out and it is not computed */
  args.dweight = matrix(dweight, kClasses, kHidden);

  /* How much scratch depends on shapes and types alone: ask once, keep it. */
  tigon_context context = TIGON_CONTEXT_INIT;
  int64_t bytes = 0;
  if (failed(tigon_fused_linear_cross_entropy_forward_scratch(&context, &args, &bytes))) return 1;
  context.scratch = malloc((size_t)bytes);
  if (context.scratch == NULL) return 1;
  context.scratch_bytes = bytes;
  const int status = tigon_fused_linear_cross_entropy_forward(&context, &args);
  free(context.scratch);
  if (failed(status)) return 1;
  printf("loss %.4f, %lld bytes of scratch\n", loss, (long long)bytes);
  return loss < 2.7725f || loss > 2.7727f; /* all classes alike: log(16) */
}
