#pragma once

#include <map>

#include "train/residency/in_flight.hpp"
#include "train/residency/lane.hpp"
#include "train/residents.hpp"

namespace tigon {

// The inputs of layers, [tokens, hidden] for each layer and micro-batch, from forward to backward: what remains of a
// layer under recompute "block". Layer `layers` stands for the last one's output. In backward a place that was emptied
// may hold the gradient of what was there.
class LayerInputs {
 public:
  virtual ~LayerInputs() = default;
  virtual void keep(const Context& ctx, int64_t layer, int64_t micro, OwnedTensor x) = 0;
  // To be read by what ctx.stream gets; it stays where it is.
  virtual OwnedTensor lend(const Context& ctx, int64_t layer, int64_t micro) = 0;
  // For the last time.
  virtual OwnedTensor take(const Context& ctx, int64_t layer, int64_t micro) = 0;
  // It will be asked for next.
  virtual void prefetch(const Context&, int64_t /*layer*/, int64_t /*micro*/) {}
  // Whatever is still on its way home is waited for, in ctx.stream's order.
  virtual void finish(const Context&) {}
};

// They stay on the device.
class ResidentInputs final : public LayerInputs {
 public:
  ResidentInputs(int64_t layers, int64_t micros)
      : micros_(micros), places_(static_cast<size_t>((layers + 1) * micros)) {}
  void keep(const Context&, int64_t layer, int64_t micro, OwnedTensor x) override { at(layer, micro) = std::move(x); }
  OwnedTensor lend(const Context&, int64_t layer, int64_t micro) override {
    OwnedTensor view;
    view.view = at(layer, micro);
    return view;
  }
  OwnedTensor take(const Context&, int64_t layer, int64_t micro) override { return std::move(at(layer, micro)); }

 private:
  OwnedTensor& at(int64_t layer, int64_t micro) { return places_[static_cast<size_t>(layer * micros_ + micro)]; }

  int64_t micros_;
  std::vector<OwnedTensor> places_;
};

// Their home is the host: each leaves while the next is computed, and comes back while the one before it is in use.
class HostInputs final : public LayerInputs {
 public:
  HostInputs(int64_t micros, const std::vector<OwnedTensor>& homes, Lane& up, Lane& down)
      : micros_(micros), homes_(homes), up_(up), down_(down), kept_(homes.size()) {}
  void keep(const Context& ctx, int64_t layer, int64_t micro, OwnedTensor x) override;
  OwnedTensor lend(const Context& ctx, int64_t layer, int64_t micro) override { return take(ctx, layer, micro); }
  OwnedTensor take(const Context& ctx, int64_t layer, int64_t micro) override;
  void prefetch(const Context& ctx, int64_t layer, int64_t micro) override;
  void finish(const Context& ctx) override { (void)leaving_.join(ctx); }

 private:
  int64_t place(int64_t layer, int64_t micro) const { return layer * micros_ + micro; }

  int64_t micros_;
  const std::vector<OwnedTensor>& homes_;
  Lane& up_;
  Lane& down_;
  std::vector<Moment> kept_;  // when what a place holds is at home
  std::map<int64_t, InFlight> coming_;
  InFlight leaving_;
};

}  // namespace tigon
