r"""The formula of every loss as LaTeX; the symbols are explained in ``SYMBOLS``.

A sibling of the docstrings, which ``cml losses NAME`` prints as plain text.
"""

from __future__ import annotations

SYMBOLS = r"""$f_a$ is the embedding of anchor $a$, $D$ the squared Euclidean distance of two embeddings and $d$ the
Euclidean one, $s$ or $\cos$ a cosine, $\delta_{ai}$ the label distance from $a$ to $i$, $[x]_+ = \max(x, 0)$. Class
losses have positives $p$ and negatives $n$ of an item, its class $y$, and proxies $p_k$."""

SETTINGS = {  # which setting a symbol stands for, where its name does not tell
    "kernel-supcon": "$t$ is `temperature`. $h$ is `bandwidth` times `label_scale`.",
    "soft-target": "$t$ is `temperature`. $t_y$ is `label_temperature` times `label_scale`.",
}

FORMULAS = {
    "log-ratio": r"\frac{1}{A} \sum_a \frac{2 \sum_i w_{ai} (r_{ai} - \bar r_a)^2}{1 - \sum_i w_{ai}^2}, \quad"
    r" r_{ai} = \log(D(f_a, f_i) + \epsilon) - p \log \delta_{ai}, \quad \bar r_a = \sum_i w_{ai} r_{ai},"
    r" \quad \sum_i w_{ai} = 1",
    "binary": r"\ell\big(\{(a, p)\}, \{(a, n)\}\big), \quad p \in P(a), \; n \in N(a) \text{ by the rule}",
    "binary-triplet": r"\mathrm{mean}_{a,\, p \in P(a),\, n \in N(a)} \; [\, D(f_a, f_p) - D(f_a, f_n) + m \,]_+",
    "contrastive": r"\mathrm{mean}_{(i, p)} \; D(f_i, f_p) + \mathrm{mean}_{(i, n)} \; [\, m - d(f_i, f_n) \,]_+^2",
    "cosent": r"\log\Big(1 + \sum_{\delta_{ai} > \delta_{bj}} \exp\big(\lambda (\cos_{ai} - \cos_{bj})\big)\Big)",
    "dense-triplet": r"\mathrm{mean}_{a, i, j:\, \delta_{ai} < \delta_{aj}} \; [\, D(f_a, f_i) - D(f_a, f_j) + m \,]_+",
    "direction-multi-similarity": r"\mathrm{mean}_i \;"
    r" \frac{1}{\alpha} \log\Big(1 + \sum_p e^{-\alpha (s_{ip} - b)}\Big)"
    r" + \frac{1}{\beta} \log\Big(1 + \sum_n e^{\beta (s_{in} - b) - \gamma \cos(f_n - f_i,\, f_{p^*} - f_i)}\Big)",
    "direction-proxy-nca": r"\mathrm{mean}_i \; D(f_i, p_y) + \log \sum_{k \neq y}"
    r" \exp\big(-D(f_i, p_k) - \gamma \cos(p_k - f_i,\, p_y - f_i)\big)",
    "direction-triplet": r"\mathrm{mean}_{a, p, n} \;"
    r" [\, D(f_a, f_p) - D(f_a, f_n) + m - \gamma \cos(f_n - f_a,\, f_p - f_a) \,]_+",
    "graded-contrastive": r"\mathrm{mean}_{a, j} \; \tfrac{1}{2} \psi\, d^2"
    r" + \tfrac{1}{2} (1 - \psi) [\, m - d \,]_+^2,"
    r" \quad \psi = \Big[\, 1 - \frac{\delta_{aj}}{\rho\, \sigma} \,\Big]_+",
    "h-ap": r"\mathrm{mean}_a \; 1 - \frac{\sum_k h_k / r_k}{\sum_k g_k}, \quad"
    r" h_k = g_k + \sum_{s_j > s_k} \min(g_j, g_k), \quad"
    r" r_k = 1 + \sum_{g_j < g_k} \mathrm{sigmoid}\Big(\frac{s_j - s_k}{t}\Big) + \sum_{g_j \ge g_k} [s_j > s_k]",
    "kernel-supcon": r"\mathrm{mean}_a \; - \sum_j \frac{w_j}{\sum_k w_k} \log \frac{e^{\cos_{aj} / t}}"
    r"{\sum_k e^{\cos_{ak} / t}}, \quad w_j = \exp\Big(-\frac{\delta_{aj}^2}{2 h^2}\Big)",
    "lambda-ndcg": r"\mathrm{mean}_a \sum_{g_i > g_j} \frac{g_i - g_j}{\mathrm{IDCG}}"
    r" \left| \frac{1}{\log_2(1 + r_i)} - \frac{1}{\log_2(1 + r_j)} \right|"
    r" \log\Big(1 + e^{-(s_i - s_j) / t}\Big)",
    "language-guidance": r"\ell + \omega\, \mathrm{mean}_i \; \mathrm{KL}\Big(\mathrm{softmax}_j \frac{S_{ij}}{t} \,"
    r"\Big\Vert\, \mathrm{softmax}_j \frac{T_{ij} + \gamma [y_i = y_j]}{t}\Big)",
    "lifted-structure": r"\mathrm{mean}_{(i, j)} \; \tfrac{1}{2} \Big[\, d_{ij} + \log\Big(\sum_{n} e^{m - d_{in}}"
    r" + \sum_{n} e^{m - d_{jn}}\Big) \,\Big]_+^2",
    "matryoshka": r"\mathrm{mean}_{q \in Q} \; \ell\big(f_{1..q},\, \delta\big)",
    "multi-similarity": r"\mathrm{mean}_i \; \frac{1}{\alpha} \log\Big(1 + \sum_p e^{-\alpha (s_{ip} - b)}\Big)"
    r" + \frac{1}{\beta} \log\Big(1 + \sum_n e^{\beta (s_{in} - b)}\Big)",
    "n-pair": r"\mathrm{mean}_i \; \log\Big(1 + \sum_{j \neq i} e^{f_{a_i} \cdot f_{p_j} - f_{a_i} \cdot f_{p_i}}\Big)",
    "proxy-anchor": r"\frac{1}{|P^+|} \sum_{p \in P^+} \log\Big(1 + \sum_{x \in X_p^+} e^{-\alpha (s - \Delta)}\Big)"
    r" + \frac{1}{|P|} \sum_{p \in P} \log\Big(1 + \sum_{x \in X_p^-} e^{\alpha (s + \Delta)}\Big)",
    "proxy-gml": r"- \mathrm{mean}_i \; \log \frac{e^{Z_{iy}}}{\sum_{k \text{ kept}} e^{Z_{ik}}}"
    r" + \lambda L_{\mathrm{proxies}},"
    r" \quad Z_{ik} = \sum_{j \text{ kept, of class } k} s_{ij}",
    "proxy-nca": r"- \mathrm{mean}_i \; \log \frac{e^{-\sigma D(f_i, p_y)}}{\sum_k e^{-\sigma D(f_i, p_k)}}",
    "proxy-nca-pp": r"- \mathrm{mean}_i \; \log \frac{e^{-D(f_i, p_y) / T}}{\sum_k e^{-D(f_i, p_k) / T}}",
    "rank-n-contrast": r"- \mathrm{mean}_{a, j} \; \log"
    r" \frac{e^{s_{aj}}}{\sum_{\delta_{ak} \ge \delta_{aj}} e^{s_{ak}}},"
    r" \quad s_{ak} = -\frac{d(f_a, f_k)}{t}",
    "regression": r"\mathrm{mean}_{i, v} \; h\Big(f_{iv} - \frac{y_{iv} - \bar y_v}{\sigma}\Big), \quad h(x) = x^2",
    "relaxed-contrastive": r"\mathrm{mean}_a \sum_j w\, u_{aj}^2 + (1 - w) [\, \Delta - u_{aj} \,]_+^2, \quad"
    r" u_{aj} = \frac{d(f_a, f_j)}{\mathrm{mean}_k\, d(f_a, f_k)}, \quad"
    r" w = \exp\Big(-\frac{(\delta_{aj} / \lambda)^2}{\sigma}\Big)",
    "rkd-distance": r"\mathrm{mean}_{a, j} \; h\Big(\frac{d(f_a, f_j)}{\bar d} - "
    r"\frac{\delta_{aj}}{\bar \delta}\Big),"
    r" \quad h(x) = \tfrac{1}{2} x^2 \text{ for } |x| \le 1, \text{ else } |x| - \tfrac{1}{2}",
    "soft-target": r"- \mathrm{mean}_a \sum_j p_j \log q_j, \quad p = \mathrm{softmax}_j\Big("
    r"-\frac{\delta_{aj}}{t_y}\Big),"
    r" \quad q = \mathrm{softmax}_j\Big(-\frac{D(f_a, f_j)}{t}\Big)",
    "soft-triple": r"- \mathrm{mean}_i \; \log \frac{e^{\lambda (S_y - m)}}{e^{\lambda (S_y - m)} +"
    r" \sum_{k \neq y} e^{\lambda S_k}}, \quad S_k = \sum_m \mathrm{softmax}_m\Big(\frac{s_{km}}{\gamma}\Big) s_{km}",
    "sum": r"\sum_k \omega_k \, \ell_k(f, \delta)",
    "triplet": r"\mathrm{mean}_{(a, p, n) \text{ mined}} \; [\, D(f_a, f_p) - D(f_a, f_n) + m \,]_+",
}
