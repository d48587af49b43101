#include "backend/reference/loss.hpp"

#include <cmath>
#include <limits>

#include "backend/reference/reference_backend.hpp"

namespace tigon::reference {

namespace {

double weight(const LossBatch& batch, int64_t j) { return batch.class_weight ? at(batch.class_weight, j) : 1.0; }

}  // namespace

LossBatch::LossBatch(const Tensor& targets, const Tensor& class_weights, const Tensor& token_scales,
                     const Tensor& upstream, const ops::CrossEntropyOptions& loss_options)
    : target(targets), class_weight(class_weights), token_scale(token_scales), dloss(upstream), options(loss_options) {
  double weights = 0;
  for (int64_t i = 0; i < target.sizes[0]; ++i) {
    if (!is_counted(i)) continue;
    ++counted;
    weights += weight(*this, index_at(target, i));
  }
  if (options.reduction == ops::Reduction::mean) {
    entropy_scale = weights != 0 ? 1.0 / weights : 0.0;
    z_scale = counted > 0 ? 1.0 / static_cast<double>(counted) : 0.0;
  }
}

bool LossBatch::is_counted(int64_t token) const { return index_at(target, token) != options.ignore_index; }

TokenLoss token_loss(const LossBatch& batch, int64_t token, const std::vector<double>& logits) {
  TokenLoss result;
  if (!batch.is_counted(token)) return result;
  const size_t vocab = logits.size();
  const auto y = static_cast<size_t>(index_at(batch.target, token));
  const double cap = batch.options.softcap, smoothing = batch.options.label_smoothing;

  std::vector<double> capped = logits, slope(vocab, 1.0);
  double largest = -std::numeric_limits<double>::infinity();
  result.predicted = 0;
  for (size_t j = 0; j < vocab; ++j) {
    if (cap > 0) {
      const double t = std::tanh(logits[j] / cap);
      capped[j] = cap * t;
      slope[j] = 1.0 - t * t;
    }
    if (logits[j] > logits[static_cast<size_t>(result.predicted)]) result.predicted = static_cast<int64_t>(j);
    if (capped[j] > largest) largest = capped[j];
  }
  double sum = 0;
  for (size_t j = 0; j < vocab; ++j) sum += std::exp(capped[j] - largest);
  const double log_sum = std::log(sum);
  result.lse = largest + log_sum;
  // lse − x'_j: beside a large maximum lse itself has no room for the logarithm.
  const auto cost = [&](size_t j) { return log_sum + (largest - capped[j]); };

  const double w_y = weight(batch, static_cast<int64_t>(y));
  double entropy = (1 - smoothing) * w_y * cost(y);
  double all_weights = 0;
  for (size_t j = 0; j < vocab; ++j) {
    const double w = weight(batch, static_cast<int64_t>(j));
    all_weights += w;
    if (smoothing > 0) entropy += smoothing / static_cast<double>(vocab) * w * cost(j);
  }
  const double scale = batch.token_scale ? at(batch.token_scale, token) : 1.0;
  result.z_loss = batch.z_scale * scale * batch.options.z_loss * result.lse * result.lse;
  result.loss = batch.entropy_scale * scale * entropy + result.z_loss;

  double upstream = scale;
  if (batch.dloss) upstream *= at(batch.dloss, batch.dloss.sizes[0] == 1 ? 0 : token);
  result.gradient.resize(vocab);
  for (size_t j = 0; j < vocab; ++j) {
    const double p = std::exp(capped[j] - largest) / sum;
    const double w = weight(batch, static_cast<int64_t>(j));
    double by_capped = (1 - smoothing) * w_y * (p - (j == y ? 1.0 : 0.0));
    by_capped += smoothing / static_cast<double>(vocab) * (all_weights * p - w);
    by_capped *= batch.entropy_scale;
    by_capped += batch.z_scale * batch.options.z_loss * 2 * result.lse * p;
    result.gradient[j] = upstream * by_capped * slope[j];
  }
  return result;
}

void write_losses(const LossBatch& batch, const std::vector<TokenLoss>& losses, const ops::CrossEntropyOutputs& out) {
  const bool each = batch.options.reduction == ops::Reduction::none;
  for (const Tensor* t : {&out.loss, &out.z_loss, &out.accuracy}) {
    if (*t && !each) at(*t, 0) = 0.0;
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto token = static_cast<int64_t>(i);
    const auto add = [&](const Tensor& t, double value) {
      if (!t) return;
      if (each) {
        at(t, token) = value;
      } else {
        at(t, 0) += value;
      }
    };
    const bool right = losses[i].predicted >= 0 && losses[i].predicted == index_at(batch.target, token);
    add(out.loss, losses[i].loss);
    add(out.z_loss, losses[i].z_loss);
    add(out.accuracy, right ? (each ? 1.0 : 1.0 / static_cast<double>(batch.counted)) : 0.0);
    if (out.lse) at(out.lse, token) = losses[i].lse;
    if (!out.predicted) continue;
    if (out.predicted.dtype == DType::i32) {
      out.predicted.as<int32_t>()[token] = static_cast<int32_t>(losses[i].predicted);
    } else {
      out.predicted.as<int64_t>()[token] = losses[i].predicted;
    }
  }
}

}  // namespace tigon::reference
