// KvCaches: the KV caches of a model, one for each of its layers.
#pragma once

#include <utility>
#include <vector>

#include "heed/state/kv_cache.hpp"

namespace heed::inline HEED_ABI {

// Made by a model's make_caches(). Movable, not copyable; used by one call at a time.
template <KvCache Cache>
class KvCaches {
 public:
  using cache_type = Cache;

  // Adds the next layer's cache. Allocates.
  void append(Cache cache) { layers_.push_back({std::move(cache)}); }

  Index num_layers() const noexcept { return static_cast<Index>(layers_.size()); }
  Cache& operator[](Index layer) noexcept { return layers_[static_cast<std::size_t>(layer)].cache; }
  const Cache& operator[](Index layer) const noexcept { return layers_[static_cast<std::size_t>(layer)].cache; }

  Index batch() const noexcept { return layers_.empty() ? 0 : layers_.front().cache.batch(); }
  // Tokens of a row that have been appended, the same in all layers.
  Index length(Index row) const noexcept {
    return layers_.empty() ? 0 : static_cast<Index>(layers_.front().cache.lengths()(row));
  }
  // The most keys that a row can have in any layer; for workspaces.
  Index most_keys() const noexcept {
    Index most = 0;
    for (const Layer& layer : layers_) most = layer.cache.most_keys() > most ? layer.cache.most_keys() : most;
    return most;
  }
  // Takes tokens of a row back in all layers. Errors: as the cache's truncate().
  void truncate(Index row, Index length) {
    for (Layer& layer : layers_) layer.cache.truncate(row, length);
  }

 private:
  struct Layer {
    Cache cache;
  };
  std::vector<Layer> layers_;
};

}  // namespace heed::inline HEED_ABI
