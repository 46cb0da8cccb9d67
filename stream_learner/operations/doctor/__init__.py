"""`doctor`: whether two topics and a configuration fit each other, from a look at the topics.

`sample` reads some records of both topics. Everything else is pure: it takes the sample and the configuration, and
returns findings. `run` calls the parts in order; what a part has settled, the next one goes by: an id that is
configured wrongly is told once, and keys and delays are judged by the ids that fit.

| module      | answers                                                                                        |
|-------------|------------------------------------------------------------------------------------------------|
| `sample`    | the newest records of each partition, and older impressions, from where the clicks begin       |
| `events`    | JSON or what else? The fields of each event                                                    |
| `times`     | which fields are times, in which unit, how far from the records' timestamps                    |
| `ids`       | which pairs of fields share values; do clicks find their impressions                           |
| `swapped`   | does each topic hold what the other should                                                     |
| `keys`      | do an impression and its click lie in partitions of one number; key fields, partitioners       |
| `delays`    | how long clicks take, and what window covers them; clocks; disorder                            |
| `fields`    | what each field holds; numbers without a scale, ids, times and labels among the features       |
| `cluster`   | replicas and settings of these topics, and of the model's own                                  |
| `allowed`   | may this identity do what joiner and learner need                                              |
| `retention` | do the topics keep what a joiner needs                                                         |
| `crosses`   | which pairs of fields say more than the sum of both                                            |
| `outages`   | stretches without any click that no chance explains                                            |
| `hours`     | whether clicks go by the hour of the day                                                       |
| `traffic`   | how fast events come, and what an impression has                                                |
| `sizing`    | what a model takes at that rate                                                                |
| `proposal`  | a first configuration                                                                          |

A sample proves little about what is rare, and a share of it is an estimate. So a finding needs `ENOUGH` records, and a
bound is far from what a healthy site has.
"""
